"""Tells whether commands can run in drafts here: an overlay over a root, with its upper folder in the daemon's own.

Owns: trying it for real, once for each pair of file systems. Does not own: the overlay's folders (adapters.drafts).
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import TRY_TIMEOUT_S, Order, Sandbox, spawn
from palyra.ports.drafts import OverlayRoot

OPAQUE = "user.overlay.opaque"
_TRIED = "echo ready > new && rm file && rmdir gone replaced && mkdir replaced"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class NoOverlay(msgspec.Struct, frozen=True):
    """Why there are no drafts here, and what would give them."""

    reason: str


class OverlayCheck:
    """Remembers what was tried. `home` is where the upper folders lie."""

    def __init__(self, sandbox: Sandbox, home: Path) -> None:
        self._sandbox = sandbox
        self._home = home
        self._found: dict[tuple[str, int, int], NoOverlay | None] = {}

    def missing(self, roots: tuple[str, ...]) -> NoOverlay | None:
        """Returns why one of the roots cannot be a draft; None if all can."""
        try:
            for root in roots:
                why = self._missing(root)
                if why is not None:
                    return why
        except OSError as cause:
            return self._untried(cause)
        return None

    def missing_here(self) -> NoOverlay | None:
        """Returns why nothing beside the daemon's own folder can be a draft; None if it can."""
        try:
            return self._missing_here()
        except OSError as cause:
            return self._untried(cause)

    def _untried(self, cause: OSError) -> NoOverlay:
        """A disk that is full now says nothing about overlays, so this is not remembered."""
        return NoOverlay(f"drafts could not be tried in {self._home} ({cause.strerror}); mend that, then try again")

    def _missing_here(self) -> NoOverlay | None:
        device = self._device()
        key = ("", device, device)
        if key not in self._found:
            self._found[key] = self._try()
        return self._found[key]

    def _missing(self, root: str) -> NoOverlay | None:
        below = root.rstrip("/") + "/"
        own = self._device()
        if os.path.realpath(self._home).startswith(below):
            return NoOverlay("the daemon's own folder lies in the workspace; move one of them out of the other")
        mounted = next((place for place in mount_points() if place.startswith(below)), None)
        if mounted is not None:
            return NoOverlay(f"another file system is mounted at {mounted}, in the workspace; mount it elsewhere")
        here = os.stat(root).st_dev
        if here == own:
            return self._missing_here()
        key = (root, here, own)
        if key not in self._found:
            self._found[key] = self._missing_here() or self._try_over(root)
        return self._found[key]

    def _device(self) -> int:
        try:
            return os.stat(self._home).st_dev
        except FileNotFoundError:
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.stat(self._home).st_dev

    def _try(self) -> NoOverlay | None:
        """Runs a command that creates, deletes and replaces, and looks at what the overlay made of it."""
        folder = Path(mkdtemp(prefix="try-", dir=self._home))
        try:
            for name in ("root", "upper", "work", "root/gone", "root/replaced"):
                (folder / name).mkdir()
            (folder / "root/file").write_text("x")
            root = str((folder / "root").resolve())
            complaint = self._run(folder, root, _TRIED)
            is_there = (folder / "upper/new").exists() and _is_deletion(folder / "upper/file")
            if complaint is None and is_there and _is_opaque(folder / "upper/replaced"):
                return None
            return _no_overlay(complaint or "deletions do not show")
        finally:
            _remove(folder)

    def _try_over(self, root: str) -> NoOverlay | None:
        """Tries the root itself, which lies on another file system. Nothing is written to it."""
        folder = Path(mkdtemp(prefix="try-", dir=self._home))
        try:
            for name in ("upper", "work"):
                (folder / name).mkdir()
            complaint = self._run(folder, root, "true")
            return None if complaint is None else _no_overlay(complaint)
        finally:
            _remove(folder)

    def _run(self, folder: Path, root: str, command: str) -> str | None:
        overlay = OverlayRoot(root=root, upper=str(folder / "upper"), work=str(folder / "work"))
        order = Order(command=command, cwd=root, roots=(root,), limits=CommandLimits(), overlays=(overlay,))
        started = spawn(self._sandbox, order)
        try:
            started.process.wait(TRY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.process.send_signal(signal.SIGKILL)
            started.process.wait()
        try:
            complained = os.read(started.stderr, 4096).decode(errors="replace").strip()
        except BlockingIOError:
            complained = ""
        for file in (started.stdout, started.stderr, started.status, started.gate):
            os.close(file)
        if started.process.returncode == 0:
            return None
        return complained.splitlines()[-1][:200] if complained else f"it ended with {started.process.returncode}"


def mount_points() -> tuple[str, ...]:
    """Returns where file systems are mounted. A sandbox cannot lay an overlay over a folder that holds one of them."""
    try:
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            lines = os.fsdecode(file.read()).split("\n")
    except OSError:
        return ()
    places = (line.split(" ", 5)[4] for line in lines if line)
    return tuple(_ESCAPE.sub(_letter, place) if "\\" in place else place for place in places)


def _letter(code: re.Match[str]) -> str:
    return chr(int(code[1], 8))


def _no_overlay(words: str) -> NoOverlay:
    return NoOverlay(
        f"drafts do not work here ({words}); they need bubblewrap 0.11, Linux 5.11 or newer, and the daemon's folder on "
        "ext4, xfs, btrfs or tmpfs, not on another overlay; see docs/sandbox.md"
    )


def _is_deletion(path: Path) -> bool:
    with suppress(OSError):
        return path.lstat().st_rdev == 0 and path.is_char_device()
    return False


def _is_opaque(path: Path) -> bool:
    with suppress(OSError):
        return os.getxattr(path, OPAQUE) == b"y"
    return False


def _remove(folder: Path) -> None:
    """The overlay leaves a folder without permissions."""
    for where, folders, names in os.walk(folder, topdown=True):
        for name in folders:
            with suppress(OSError):
                os.chmod(f"{where}/{name}", 0o700)
        for name in names:
            with suppress(OSError):
                os.unlink(f"{where}/{name}")
    for where, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(where)
