"""A daemon of an ordinary user. Owns: running commands in the sandbox after giving up the rights of root.

Started by tests.runtimes.shells, which see. Each line of its input is an order, each of its output what that came to.
"""

import json
import os
import sys
from pathlib import Path

import msgspec

from palyra.adapters.runtimes.shell.limits import CommandLimits
from tests.runtimes.shells import NOBODY, House, found_sandbox, perform


def main() -> None:
    found_sandbox()  # What Python loads late is loaded while its files can be read.
    found_sandbox.cache_clear()
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    for line in sys.stdin:
        order = json.loads(line)
        done = perform(order["arguments"], House(Path(order["base"])), msgspec.convert(order["limits"], CommandLimits))
        sys.stdout.write(json.dumps(msgspec.to_builtins(done)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
