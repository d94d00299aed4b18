"""A daemon of an ordinary user: runs commands in the sandbox after giving up the rights of root.

Owns: everything that user needs and cannot reach below a private folder. Python's modules are loaded beforehand;
bubblewrap is copied to a folder of the user's own.
Does not own: starting this process and speaking with it (tests.runtimes.shells). Each line of its input is an order,
each line of its output is what the order came to.
"""

import concurrent.futures
import json
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import WHEEL
from palyra.core.drafts.changes import ChangeSet
from palyra.core.events.draft import ChangeKind, FileChange
from tests.runtimes.shells import NOBODY, House, Trial, asking, found_sandbox, perform


def main() -> None:
    with TemporaryDirectory(prefix="palyra-nobody-", dir="/var/tmp") as folder:
        give_bubblewrap(folder)
        give_up_rights()
        _obey()


def give_up_rights() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def give_bubblewrap(folder: str) -> None:
    """Installs a second copy of the wheel, which comes before the one that may be out of reach."""
    found_sandbox()  # Loads also what Python loads late, while its files can be read.
    found_sandbox.cache_clear()
    "".encode("unicode_escape")
    asking(ChangeSet(changes=(FileChange(root="/", path="x", kind=ChangeKind.CREATED),)))
    concurrent.futures.ThreadPoolExecutor  # noqa: B018 it is loaded at its first use
    for file in metadata.files(WHEEL) or []:
        copy = Path(folder, file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(file.locate()), copy)
    for path in [Path(folder), *Path(folder).rglob("*")]:
        os.chown(path, NOBODY, NOBODY)  # Who owns the folder can remove it at the end.
    sys.path.insert(0, folder)


def _obey() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        limits = msgspec.convert(order["limits"], CommandLimits)
        done = perform(Trial(order["arguments"], House(Path(order["base"])), limits, order["is_applied"]))
        sys.stdout.write(json.dumps(msgspec.to_builtins(done)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
