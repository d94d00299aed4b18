"""Requests made from the OpenAPI document by schemathesis, against a real daemon: no server error, no undocumented answer.

Left out: routes that change the token the campaign uses, and streams without an end. Checks that are left out look at
refusals by content (an agent that does not exist fits the schema and is refused) and at missing tokens, of which the
daemon answers only 30 a minute; the access matrix holds those.
Usage: python -m tests.gateway.schema_campaign [--examples N]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.daemons import Daemon

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is done."\n'
SKIPPED_PATHS = "(events$|rotate-admin|logout|/tokens/)"
SKIPPED_CHECKS = "ignored_auth,missing_required_header,positive_data_acceptance"
# A body beyond the limit is refused before it is read.
SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 413, 429, "5xx"]
"""
TIMEOUT_S = 3_600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="examples of each operation")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="palyra-schema-") as folder,
        Daemon(Path(folder) / "home", SCRIPT) as daemon,
    ):
        (Path(folder) / "schemathesis.toml").write_text(SETTINGS)
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{daemon.port}/api/v1/openapi.json",
            "--header", f"Authorization: Bearer {daemon.token}",
            "--checks", "all", "--exclude-checks", SKIPPED_CHECKS, "--exclude-path-regex", SKIPPED_PATHS,
            "--phases", "examples,coverage,fuzzing", "--max-examples", str(options.examples),
            "--request-timeout", "30", "--generation-database", "none",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, timeout=TIMEOUT_S)
        status, _ = daemon.call("GET", "/healthz")
    if done.returncode or status != 200:
        raise SystemExit("the document and the daemon disagree; see above")
    print("the document and the daemon agree")


if __name__ == "__main__":
    main()
