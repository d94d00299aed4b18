"""Fails when a test was skipped for a reason nobody agreed to. Owns: reading pytest's results. Not: running tests.

A line of the list is a whole reason, or the beginning of one if it ends in `*`; lines that begin with `#` say why.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def main(arguments: list[str]) -> int:
    results, allowed_list = (Path(argument) for argument in arguments)
    skips = read_skips(results)
    allowed = read_allowed(allowed_list)
    refused = [(test, reason) for test, reason in skips if not is_allowed(reason, allowed)]
    for test, reason in refused:
        print(f"skipped without leave: {test}: {reason}")
    print(f"{len(skips)} skipped, {len(refused)} without leave")
    return 1 if refused else 0


def read_skips(results: Path) -> list[tuple[str, str]]:
    """Every skipped test with its reason. Results without a single test are no results."""
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    if not cases:
        raise SystemExit(f"{results} holds no tests: the suite did not run")
    return [
        (f"{case.get('classname')}::{case.get('name')}", skip.get("message", ""))
        for case in cases
        for skip in case.iter("skipped")
    ]


def read_allowed(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_allowed(reason: str, allowed: list[str]) -> bool:
    return any(
        reason.startswith(entry.removesuffix("*")) if entry.endswith("*") else reason == entry for entry in allowed
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
