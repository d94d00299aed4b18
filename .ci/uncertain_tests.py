"""Prints the tests that failed in the last run, one a line; fails if there are none or too many to be bad luck.

Usage: python .ci/uncertain_tests.py .pytest_cache/v/cache/lastfailed
"""

import json
import sys
from pathlib import Path

TESTS_MAX = 3


def main(path: Path) -> int:
    try:
        failed = sorted(json.loads(path.read_text()))
    except OSError:
        failed = []
    if not 1 <= len(failed) <= TESTS_MAX:
        print(f"{len(failed)} tests failed, and only 1 to {TESTS_MAX} are tried again", file=sys.stderr)
        return 1
    print("\n".join(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
