"""What a sandboxed command sees: the files and folders that are mounted for it, and which roots those are.

Does not own: namespaces (sandbox), limits (limits).
Invariants: a command sees installed software, a few files of /etc that everybody may read, and the roots of its
workspace. Only the roots and private memory can be written. A link in a root that leads out leads to nothing, because
nothing outside is there. The daemon's own folder is never visible, even if a root holds it.
"""

import os
from collections.abc import Callable
from glob import glob

from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.core.errors import Invalid, NotFound
from palyra.ports.drafts import OverlayRoot

HOME = "/run/home"  # No workspace lies here, so none can cover it.
PRIVATE = "/run/palyra"  # Holds the command's text and the script that limits its shell.
WORKSPACE_NAME = "workspace"  # The one folder of the daemon's own that a tool may see.

_SOFTWARE = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_MORE_SOFTWARE = ("/nix/store", "/gnu/store")
# Programs need these to find other programs, and Java to find its settings. Every mount takes time, so small files are
# copied.
_SETTINGS = ("/etc/alternatives", "/etc/java-*", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/ssl/certs")
COPIED = ("/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/ssl/openssl.cnf")
FILES = {
    "/etc/passwd": f"agent:x:1000:1000:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": "agent:x:1000:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
}
# A daemon of root owns the kernel's files and devices, and so do its commands. An owner's rights over them are taken
# away.
_PROC_FILES = (
    "kcore",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
)  # They tell an owner about all memory of the machine.


def system_mounts() -> list[str]:
    """Returns the mounts that are the same for every command of this machine."""
    made = ["--ro-bind", "/usr", "/usr"]
    for path in _SOFTWARE:
        if os.path.islink(path):
            made += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            made += ["--ro-bind", path, path]
    for path in (*_MORE_SOFTWARE, *(found for pattern in _SETTINGS for found in sorted(glob(pattern)))):
        if os.path.exists(path):
            made += ["--ro-bind", path, path]
    return [*made, "--proc", "/proc", *_proc_masks(), "--remount-ro", "/proc", "--dev", "/dev"]


def private_mounts(limits: CommandLimits) -> list[str]:
    """Returns the memory that only this command sees.

    A writable mount without a size could take all memory, so none may stay.
    """
    return [
        *("--size", str(limits.shared_memory_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"),  # noqa: S108 in the sandbox
        *("--remount-ro", "/dev"),
        *("--size", str(limits.temporary_bytes), "--perms", "1777", "--tmpfs", "/tmp"),  # noqa: S108 in the sandbox
        *("--size", str(limits.temporary_bytes), "--perms", "0700", "--tmpfs", HOME),
    ]


MountRoot = Callable[[str], list[str]]


def mount_root(overlays: tuple[OverlayRoot, ...], *, is_direct: bool) -> MountRoot:
    """Returns how a root is mounted: as a draft, as it is, or read-only."""
    drafts = {each.root: each for each in overlays}

    def mount(root: str) -> list[str]:
        draft = drafts.get(root)
        if draft is not None:
            layer = ["--overlay-src", draft.layer] if draft.layer else []
            return ["--overlay-src", root, *layer, "--overlay", draft.upper, draft.work, root]
        return ["--bind" if is_direct else "--ro-bind", root, root]

    return mount


def root_mounts(roots: tuple[str, ...], hidden: str | None, mount: MountRoot) -> list[str]:
    """Returns the mounts of the workspace. Shorter paths come first, because deeper ones are mounted over them."""
    made: list[str] = []
    covered = [hidden] if hidden is not None and any(_is_under(hidden, root) for root in roots) else []
    for path in sorted({*roots, *covered}, key=lambda path: (path.count("/"), path)):
        made += ["--size", "4096", "--tmpfs", path] if path in covered else mount(path)
    for path in covered:
        made += ["--remount-ro", path]
    return made


def real_roots(workspace: tuple[str, ...], hidden: str | None) -> tuple[str, ...]:
    """Returns where the roots really are.

    A root inside another is left out: a command could have put a link in its place.
    """
    if not workspace:
        raise Invalid("workspace_missing", "this agent has no workspace; give it one in palyra.toml")
    found: list[str] = []
    for root in workspace:
        real = os.path.realpath(root)
        if not os.path.isdir(real):
            raise NotFound("workspace_missing", f"the workspace folder {root} is not there; create it")
        if real == "/" or (hidden is not None and _is_under(real, hidden) and not _is_allowed(real, hidden)):
            raise Invalid("workspace_invalid", f"{root} cannot be a workspace of a sandbox; choose another folder")
        found.append(real)
    return tuple(root for root in dict.fromkeys(found) if not _is_inner(root, found, hidden))


def aliases_of(workspace: tuple[str, ...], roots: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the operator's names of roots that differ from the real folders because of a link."""
    named = {os.path.abspath(root): os.path.realpath(root) for root in workspace}
    links = {name: real for name, real in named.items() if name != real and not is_inside(name, roots)}
    # A name below another one is reached through that one's link.
    return tuple((name, real) for name, real in links.items() if not is_inside(os.path.dirname(name), tuple(links)))


def _is_allowed(root: str, hidden: str) -> bool:
    return _is_under(root, f"{hidden}/{WORKSPACE_NAME}")


def _is_inner(root: str, roots: list[str], hidden: str | None) -> bool:
    """Tells whether another root shows this one already.

    It does not if the daemon's folder, which is hidden, lies between.
    """
    outer = [other for other in roots if other != root and _is_under(root, other)]
    if hidden is not None and _is_under(root, hidden):
        outer = [other for other in outer if _is_under(other, hidden)]
    return bool(outer)


def is_inside(path: str, roots: tuple[str, ...]) -> bool:
    return any(_is_under(path, root) for root in roots)


def _proc_masks() -> list[str]:
    found = [f"/proc/{name}" for name in _PROC_FILES if os.geteuid() == 0 and os.path.exists(f"/proc/{name}")]
    return [word for path in found for word in ("--ro-bind", "/dev/null", path)]


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
