"""The index of modules in docs/where-to-look.md, made from the modules' docstrings.

Owns: the generated part of that page. Does not own: its hand-written head, which is kept as it is.
`make index` writes the page. tests/test_docs.py fails while it is not current.
"""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import GENERATED

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "palyra"
PAGE = ROOT / "docs" / "where-to-look.md"
COLUMNS = 120
MARK = "<!-- Everything below is generated from docstrings by `make index`. Edit the docstrings. -->"


def write_index(page: Path = PAGE, package: Path = PACKAGE) -> None:
    page.write_text(index_page(page.read_text(encoding="utf-8"), package), encoding="utf-8")


def index_page(text: str, package: Path = PACKAGE) -> str:
    """The page with its head kept and the rest made anew."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError("the page lacks the line that separates its head from the generated part")
    return "\n".join([f"{head}{MARK}", *_sections(package), ""])


def first_sentence(docstring: str) -> str:
    """The first line, with the next ones while a sentence is not over."""
    lines: list[str] = []
    for line in docstring.strip().splitlines():
        if not line.strip():
            break
        lines.append(line.strip())
        if line.rstrip().endswith((".", "?", "!")):
            break
    return " ".join(lines)


def _sections(package: Path) -> Iterator[str]:
    for folder in sorted(path.parent for path in package.rglob("__init__.py")):
        name = folder.relative_to(package).as_posix()
        modules = sorted(path for path in folder.glob("*.py") if not path.name.endswith(("__init__.py", GENERATED)))
        yield from ("", f"## `{name}/`" if name != "." else "## The package itself", "")
        yield from textwrap.wrap(_said(folder / "__init__.py"), COLUMNS, break_long_words=False, break_on_hyphens=False)
        if modules:
            yield from ("", "| module | what it is |", "|---|---|")
        for path in modules:
            yield f"| `{path.relative_to(package).as_posix()}` | {_said(path).replace('|', chr(92) + '|')} |"


def _said(path: Path) -> str:
    return first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


if __name__ == "__main__":
    write_index()
