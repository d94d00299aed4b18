"""The operator's policies. Owns: reading `policies/*.cedar` of a home, and reading them again when they change. Not: Cedar.

A new set takes the place of the old one whole, between two questions. Files that do not hold together leave the old set in
force, and so does a file that is gone: what it forbade stays forbidden until the daemon is started without it. The state
says why. At the start there is no old set, so broken files put a set in force under which a person sees everything
(defaults/broken.cedar).
Invariant: a change is taken up only when two looks have found it the same, so that a file being written is not read in half.
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
    SOURCE_CHARACTERS_MAX,
    BrokenBook,
    PolicyBook,
    PolicyProblem,
    PolicySource,
    make_book,
)
from palyra.core.errors import NotFound

LOOK_EVERY_S = 0.5
FILES_MAX = 200
SUFFIX = ".cedar"

log = structlog.get_logger()

Marks = dict[str, tuple[int, int, int]]  # By file name: what tells that a file is another than before.
_UNREADABLE: Marks = {"": (0, 0, 0)}  # Like no folder that can be read, so that one that can is read anew.


class FixedShelf:
    """A book that stays as it is: a draft, or the policies of one moment."""

    def __init__(self, book: PolicyBook) -> None:
        self._book = book

    def book(self) -> PolicyBook:
        return self._book

    def state(self) -> str:
        return "ok"


class FolderChange(msgspec.Struct, frozen=True):
    """What became of a look: a set taken up, or one refused."""

    action: str
    sha256: str
    detail: str


class PolicyFolder:
    """A shelf. The daemon asks for the book at every judgement; the folder is looked at now and then."""

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
        self._book = self._begin()
        self._looked_at_s = monotonic_s()

    def book(self) -> PolicyBook:
        """Never waits: while one thread reads anew, the others go on with what there is."""
        if self._monotonic_s() - self._looked_at_s >= self._look_every_s and self._lock.acquire(blocking=False):
            try:
                self._looked_at_s = self._monotonic_s()
                self._look()
            finally:
                self._lock.release()
        return self._book

    def state(self) -> str:
        self.book()
        return self._state

    def _begin(self) -> PolicyBook:
        try:
            self._marks = _marks(self._root)
            self._sources = read_sources(self._root)
            return make_book(tuple(self._sources.values()))
        except (BrokenBook, OSError) as cause:
            self._sources, self._is_broken = {}, True
            book = make_book((), ("broken", "calls", "access"))
            reason = f"{cause}; until this is fixed what reads asks and all else is refused"
            self._tell(FolderChange("policy.rejected", book.sha256, reason))
            return book

    def _look(self) -> None:
        try:
            marks = _marks(self._root)
        except (BrokenBook, OSError) as cause:
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
            book = make_book(tuple(sources.values()))
        except (BrokenBook, OSError) as cause:
            kept = "only what reads, and that asks" if self._is_broken else "the policies read before stay in force"
            self._keep(f"{cause}; {kept}")
            return
        self._sources, self._is_broken = sources, False
        if book.sha256 != self._book.sha256:
            self._book = book
            self._tell(FolderChange("policy.reloaded", book.sha256, f"{len(book.entries)} policies"))
        self._state = "ok"
        if gone:
            names = ", ".join(f"{name}{SUFFIX}" for name in gone)
            self._keep(f"{names} is gone; what it said stays in force until the daemon is started without it")

    def _keep(self, reason: str) -> None:
        """Said once, however often it is found so."""
        if reason != self._state:
            self._tell(FolderChange("policy.rejected", self._book.sha256, reason))

    def _tell(self, change: FolderChange) -> None:
        if change.action == "policy.rejected":
            self._state = change.detail
            log.error("policy_rejected", reason=change.detail, sha256=change.sha256)
        else:
            log.info("policy_reloaded", what=change.detail, sha256=change.sha256)
        if self.on_change is not None:
            self.on_change(change)


def draft_shelf(drafts: Sequence[Path], root: Path) -> FixedShelf:
    """The policies of a home with drafts over them: one named like a file there takes its place, others come beside it.

    BrokenBook and NotFound say what is wrong, with the drafts or with what they stand over.
    """
    sources = read_sources(root)
    for path in drafts:
        try:
            draft = read_source(path)
        except OSError as cause:
            raise NotFound("policy_unreadable", f"{path} cannot be read: {cause.strerror}; check its name") from cause
        sources[draft.name] = draft
    return FixedShelf(make_book(tuple(source for _, source in sorted(sources.items()))))


def read_sources(root: Path) -> dict[str, PolicySource]:
    """Every file of policies by name without its ending, in order. BrokenBook where one is no plain text of ours."""
    found: dict[str, PolicySource] = {}
    problems: list[PolicyProblem] = []
    for name in sorted(_marks(root)):
        try:
            found[name.removesuffix(SUFFIX)] = read_source(root / name)
        except BrokenBook as cause:
            problems += cause.problems
    if problems:
        raise BrokenBook(problems)
    return found


def read_source(path: Path) -> PolicySource:
    """OSError where it cannot be read."""
    if not path.is_file():
        raise BrokenBook([PolicyProblem(path.name, 1, "is no file, or leads to none")])
    with path.open("rb") as file:
        body = file.read(4 * SOURCE_CHARACTERS_MAX + 1)
    try:
        return PolicySource(path.name.removesuffix(SUFFIX), body.decode("utf-8"))
    except UnicodeDecodeError as cause:
        line = body[: cause.start].count(b"\n") + 1
        raise BrokenBook([PolicyProblem(path.name, line, "is not UTF-8 text")]) from cause


def _marks(root: Path) -> Marks:
    """No folder is a folder with nothing in it. OSError and BrokenBook where there is one that cannot be looked at."""
    try:
        with os.scandir(root) as entries:
            found = {entry.name: _mark(entry) for entry in entries if entry.name.endswith(SUFFIX)}
    except FileNotFoundError:
        return {}
    if len(found) > FILES_MAX:
        raise BrokenBook([PolicyProblem(str(root), 1, f"holds more than {FILES_MAX} files of policies")])
    return found


def _mark(entry: "os.DirEntry[str]") -> tuple[int, int, int]:
    """A name that leads nowhere, or to no file, has a mark too: it is refused when it is read, not overlooked."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    if not stat.S_ISREG(status.st_mode):
        return (0, 0, 1)
    return (status.st_ctime_ns, status.st_size, status.st_ino)
