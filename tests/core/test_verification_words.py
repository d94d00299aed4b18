"""docs/verify.md explains every finding: the words stand both in the code and in the document."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
FORMAT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
CODE = "".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/palyra/core/verification").glob("*.py"))
)
WORDS = re.findall(
    r'(?:return|raise Corrupt\("\w+",|lost =|what =|Finding\(\w+(?:\._\w+)?, [\w.]+,|DATA_MISMATCH =) f?"([^"]+ [^"]+)"',
    CODE,
)


def test_words_of_findings_are_found_in_the_code() -> None:
    assert len(WORDS) > 20


@pytest.mark.parametrize("words", WORDS)
def test_finding_is_explained(words: str) -> None:
    """What is between braces or brackets differs each time; the longest part that does not must be in the table."""
    fixed = max(re.split(r"\{[^}]*\}|\([^)]*\)", words), key=len).strip(" ;:,")
    assert fixed in DOCUMENT


def test_digest_and_effect_of_the_document_are_those_of_the_code() -> None:
    from palyra.core.ids import RunId, derive_effect_id, digest_call

    arguments = {"path": "a.txt", "text": "hi"}
    assert f"= {digest_call('fs.write', arguments)}\n" in FORMAT
    assert f"= {derive_effect_id(RunId('01JXT21Q000000000000000002'), 1, 'fs.write', arguments)}\n" in FORMAT
