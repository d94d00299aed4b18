"""Whether what an editor embeds is the person's own: a file of the open folder, as it lies on the disk.

Owns: that decision. Does not own: the form of a prompt (content), what the level means (the daemon).
Invariants: it fails closed: whatever cannot be looked at is from outside. A dependency is somebody else's, though it
lies in the open folder: in a repository a file counts that git tracks or would track, elsewhere one that is below none
of the folders where tools put dependencies.
"""

import os
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

FILE_BYTES_MAX = 8 * 1024 * 1024  # A larger file is no text that an editor embeds.
GIT_TIMEOUT_S = 5.0
# A second net for repositories that track their dependencies, and for folders without git.
DEPENDENCIES = frozenset(
    {
        ".bundle", ".cargo", ".eggs", ".git", ".gradle", ".m2", ".nox", ".pnpm-store", ".terraform", ".tox", ".venv",
        ".yarn", "bower_components", "carthage", "deps", "dist-packages", "external", "jspm_packages", "node_modules",
        "pods", "site-packages", "third-party", "third_party", "thirdparty", "vendor", "venv", "virtualenv",
    }
)  # fmt: skip


def real_path(uri: str) -> str:
    """Returns where a file lies, wherever links lead."""
    parts = urlsplit(uri)
    return os.path.realpath(unquote(parts.path) if parts.scheme == "file" else uri)


def is_own(uri: str, body: bytes | None, folder: str | None) -> bool:
    """Tells whether the address is that of an own file in the folder, and the body is in it. Without one it is a link."""
    try:
        path = _path_in(uri, folder)
        return path is not None and _holds(path[0] / path[1], body) and _is_of_the_project(*path)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False


def _path_in(uri: str, folder: str | None) -> tuple[Path, Path] | None:
    """Returns the folder, and the path in it, wherever links lead; None if the file lies elsewhere."""
    parts = urlsplit(uri)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost")
    named = unquote(parts.path) if is_file else uri
    if not folder or not os.path.isabs(folder) or not os.path.isabs(named) or "\0" in named:
        return None
    root, real = Path(os.path.realpath(folder)), Path(os.path.realpath(named))
    if not real.is_relative_to(root) or real == root:
        return None
    return root, real.relative_to(root)


def _holds(path: Path, body: bytes | None) -> bool:
    """Compares with the bytes on the disk: whole, or a piece of them, since an editor also embeds a selection.

    Editors write line ends in their own way.
    """
    if not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
        return False
    return body is None or _plain(body) in _plain(path.read_bytes())


def _plain(body: bytes) -> bytes:
    return body.replace(b"\r\n", b"\n")


def _is_of_the_project(root: Path, path: Path) -> bool:
    if any(part.casefold() in DEPENDENCIES for part in path.parts[:-1]):
        return False
    has_git = any((above / ".git").exists() for above in (root, *root.parents))
    is_nested = any((root / above / ".git").exists() for above in path.parents if above != Path("."))
    is_environment = any((root / above / "pyvenv.cfg").exists() for above in path.parents if above != Path("."))
    if is_nested or is_environment:
        return False
    return _is_listed(root, str(path)) if has_git else True


def _is_listed(root: Path, path: str) -> bool:
    """Asks git whether it tracks the file, or would. What the repository configures to be run is not run."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(root)]
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path]
    settings = {"GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    found = subprocess.run(  # noqa: S603 - fixed words, and a path behind `--`.
        [*command, *listing], env=kept | settings, capture_output=True, timeout=GIT_TIMEOUT_S, check=False
    )
    return found.returncode == 0 and path.encode("utf-8", "surrogateescape") in found.stdout.split(b"\0")
