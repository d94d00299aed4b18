"""The operator's policies: reads `policies/*.cedar` of a home, and reads them again when they change.

Does not own: Cedar (policy_set, cedar).
A new set replaces the old one as a whole, between two questions. Broken files leave the old set in force. So does a
file that is gone: what it forbade stays forbidden until the daemon is started without it. The state says why. At the
start there is no old set. Broken files then put a set in force that asks for reading calls and refuses all others
(defaults/broken.cedar).
Invariant: a change takes effect only when two looks have found it the same, so that a half-written file is not read.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from palyra.adapters.policy.policy_set import (
    BUNDLED,
    SOURCE_CHARACTERS_MAX,
    ParsedPolicies,
    PoliciesInvalid,
    PolicyProblem,
    PolicySource,
    parse_policies,
)
from palyra.core.errors import NotFound

LOOK_EVERY_S = 0.5
FILES_MAX = 200
SUFFIX = ".cedar"
_REFUSING = "until this is fixed what reads asks and all else is refused"

log = structlog.get_logger()

Marks = dict[str, tuple[int, int, int]]  # By file name: values that differ once a file has changed.
_UNREADABLE: Marks = {"": (0, 0, 0)}  # Equals no readable folder's marks, so such a folder is read again later.


class FixedPolicies:
    """A policy set that never changes: a draft, or the policies of one moment."""

    def __init__(self, parsed: ParsedPolicies) -> None:
        self._parsed = parsed

    def current(self) -> ParsedPolicies:
        return self._parsed

    def state(self) -> str:
        return "ok"


class FolderChange(msgspec.Struct, frozen=True):
    """The result of a look at the folder: a set adopted, or one refused."""

    action: str
    sha256: str
    detail: str


class PolicyFolder:
    """Gives the policy set in force at every judgement, and looks at the folder from time to time."""

    def __init__(
        self,
        root: Path,
        *,
        look_every_s: float = LOOK_EVERY_S,
        monotonic_s: Callable[[], float] = time.monotonic,
        on_change: Callable[[FolderChange], None] | None = None,
    ) -> None:
        self._root = root
        self._look_every_s = look_every_s
        self._monotonic_s = monotonic_s
        self.on_change = on_change
        self._lock = threading.Lock()
        self._state = "ok"
        self._sources: dict[str, PolicySource] = {}
        self._marks: Marks = {}
        self._pending: Marks | None = None
        self._is_broken = False
        self._parsed = self._begin()
        self._looked_at_s = monotonic_s()

    def current(self) -> ParsedPolicies:
        """Returns the set without waiting: while one thread reads again, the others use the present set."""
        if self._monotonic_s() - self._looked_at_s >= self._look_every_s and self._lock.acquire(blocking=False):
            try:
                self._looked_at_s = self._monotonic_s()
                self._look()
            finally:
                self._lock.release()
        return self._parsed

    def state(self) -> str:
        self.current()
        return self._state

    def _begin(self) -> ParsedPolicies:
        try:
            self._marks = _marks(self._root)
            self._sources = read_sources(self._root)
            return parse_policies(tuple(self._sources.values()))
        except (PoliciesInvalid, OSError) as cause:
            self._sources, self._is_broken = {}, True
            parsed = parse_policies((), ("broken", *BUNDLED))
            reason = f"{cause}; {_REFUSING}"
            self._tell(FolderChange("policy.rejected", parsed.sha256, reason))
            return parsed

    def _look(self) -> None:
        try:
            marks = _marks(self._root)
        except (PoliciesInvalid, OSError) as cause:
            self._marks = _UNREADABLE
            self._keep(f"{cause}; the policies read before stay in force")
            return
        if marks == self._marks:
            self._pending = None
            return
        if marks != self._pending:
            self._pending = marks
            return
        self._marks, self._pending = marks, None
        self._read_again()

    def _read_again(self) -> None:
        try:
            found = read_sources(self._root)
            gone = sorted(set(self._sources) - set(found))
            sources = dict(sorted({**self._sources, **found}.items()))
            parsed = parse_policies(tuple(sources.values()))
        except (PoliciesInvalid, OSError) as cause:
            kept = _REFUSING if self._is_broken else "the policies read before stay in force"
            self._keep(f"{cause}; {kept}")
            return
        self._sources, self._is_broken = sources, False
        if parsed.sha256 != self._parsed.sha256:
            self._parsed = parsed
            self._tell(FolderChange("policy.reloaded", parsed.sha256, f"{len(parsed.entries)} policies"))
        self._state = "ok"
        if gone:
            names = ", ".join(f"{name}{SUFFIX}" for name in gone)
            self._keep(f"{names} is gone; what it said stays in force until the daemon is started without it")

    def _keep(self, reason: str) -> None:
        """Keeps the present set. A reason is reported once, however often it is found."""
        if reason != self._state:
            self._tell(FolderChange("policy.rejected", self._parsed.sha256, reason))

    def _tell(self, change: FolderChange) -> None:
        if change.action == "policy.rejected":
            self._state = change.detail
            log.error("policy_rejected", reason=change.detail, sha256=change.sha256)
        else:
            log.info("policy_reloaded", what=change.detail, sha256=change.sha256)
        if self.on_change is not None:
            self.on_change(change)


def draft_policies(drafts: Sequence[Path], root: Path) -> FixedPolicies:
    """Returns the policies of a home with drafts over them. A draft named like a file replaces it; others are added.

    PoliciesInvalid and NotFound say what is wrong with the drafts or with the home's files.
    """
    sources = read_sources(root)
    for path in drafts:
        try:
            draft = read_source(path)
        except OSError as cause:
            raise NotFound("policy_unreadable", f"{path} cannot be read: {cause.strerror}; check its name") from cause
        sources[draft.name] = draft
    return FixedPolicies(parse_policies(tuple(source for _, source in sorted(sources.items()))))


def read_sources(root: Path) -> dict[str, PolicySource]:
    """Returns every policy file by name without its suffix, in order.

    Raises PoliciesInvalid if one is not a file of UTF-8 text.
    """
    found: dict[str, PolicySource] = {}
    problems: list[PolicyProblem] = []
    for name in sorted(_marks(root)):
        try:
            found[name.removesuffix(SUFFIX)] = read_source(root / name)
        except PoliciesInvalid as cause:
            problems += cause.problems
    if problems:
        raise PoliciesInvalid(problems)
    return found


def read_source(path: Path) -> PolicySource:
    """Reads one file. Raises OSError if it cannot be read."""
    if not path.is_file():
        raise PoliciesInvalid([PolicyProblem(path.name, 1, "is no file, or leads to none")])
    with path.open("rb") as file:
        body = file.read(4 * SOURCE_CHARACTERS_MAX + 1)
    try:
        return PolicySource(path.name.removesuffix(SUFFIX), body.decode("utf-8"))
    except UnicodeDecodeError as cause:
        line = body[: cause.start].count(b"\n") + 1
        raise PoliciesInvalid([PolicyProblem(path.name, line, "is not UTF-8 text")]) from cause


def _marks(root: Path) -> Marks:
    """Returns the marks of all files; a missing folder counts as an empty one.

    Raises OSError or PoliciesInvalid if there is a folder that cannot be used.
    """
    try:
        with os.scandir(root) as entries:
            found = {entry.name: _mark(entry) for entry in entries if entry.name.endswith(SUFFIX)}
    except FileNotFoundError:
        return {}
    if len(found) > FILES_MAX:
        raise PoliciesInvalid([PolicyProblem(str(root), 1, f"holds more than {FILES_MAX} files of policies")])
    return found


def _mark(entry: "os.DirEntry[str]") -> tuple[int, int, int]:
    """Marks a name that leads nowhere, or to no file, too. So reading refuses it, and it is not overlooked."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    if not stat.S_ISREG(status.st_mode):
        return (0, 0, 1)
    return (status.st_ctime_ns, status.st_size, status.st_ino)
