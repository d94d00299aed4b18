"""How well and how fast secrets are redacted. Run: `python bench/redaction.py`; the corpus is found through PALYRA_CORPORA.

Prints µs of CPU for 100 characters of text that holds no secret, the best of several passes, and the rates the design limits.
"""

import gzip
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from palyra.core.redaction import Redactor  # noqa: E402

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or ROOT.parent / "shared" / "data")
REDACTOR = Redactor(b"benchmark")
PASSES = 15
DELTA_CHARS = 5  # About what a model's stream brings at a time.


def main() -> None:
    prose, code, plain = "\n".join(topics.values()), _code(), _json()
    print(f"{'cost, no secret in the text':44} µs per 100 characters")
    for name, text in (("prose, whole", prose), ("source code, whole", code), ("JSON, whole", plain)):
        print(f"  {name:42} {_cost_us(REDACTOR.text, [text]):8.2f}")
    for name, text in (("prose, line by line", prose), ("source code, line by line", code)):
        lines = [line for line in text.splitlines() if len(line) >= 60][:4000]
        print(f"  {name:42} {_cost_us(REDACTOR.text, lines):8.2f}")
    print(f"  {f'prose, streamed by {DELTA_CHARS} characters':42} {_cost_us(_stream, [prose[:60_000]]):8.2f}")
    print(f"\n{'quality':44} share")
    _print_corpus_rates()
    _print_touched("lines of prose touched", prose)
    _print_touched("lines of source code touched", code)


def _print_corpus_rates() -> None:
    path = CORPORA / "secrets.jsonl.gz"
    if not path.is_file():
        print(f"  no corpus at {path}; set PALYRA_CORPORA")
        return
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    cases = [(row["text"], secret) for row in rows if row["label"] for secret in row["secret"] or ()]
    survived = sum(secret in REDACTOR.text(text).text for text, secret in cases)
    negatives = [row["text"] for row in rows if not row["label"]]
    touched = sum(bool(REDACTOR.text(text).secrets) for text in negatives)
    print(f"  {'labelled secrets that survive':42} {survived / len(cases):8.2%}  ({survived} of {len(cases)})")
    print(f"  {'texts without a secret touched':42} {touched / len(negatives):8.2%}  ({touched} of {len(negatives)})")


def _print_touched(name: str, text: str) -> None:
    lines = text.splitlines()
    touched = sum(bool(REDACTOR.text(line).secrets) for line in lines)
    print(f"  {name:42} {touched / len(lines):8.4%}  ({touched} of {len(lines)})")


def _cost_us(redact: Callable[[str], object], texts: list[str]) -> float:
    best = float("inf")
    for _ in range(PASSES):
        started = time.process_time()
        for text in texts:
            redact(text)
        best = min(best, time.process_time() - started)
    return best / sum(map(len, texts)) * 100 * 1e6


def _stream(text: str) -> str:
    stream = REDACTOR.stream()
    pieces = [stream.feed(text[at : at + DELTA_CHARS]) for at in range(0, len(text), DELTA_CHARS)]
    return "".join(pieces) + stream.finish()


def _code() -> str:
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)[:2_000_000]


def _json() -> str:
    rows = [
        {
            "id": number,
            "path": f"/srv/data/{number}.txt",
            "title": "A plain title of five words",
            "size": number * 37,
            "ok": True,
        }
        for number in range(2000)
    ]
    return json.dumps({"items": rows, "next_after": None})


if __name__ == "__main__":
    main()
