"""Attributes of files: a draft never changes them.

Owns: which attributes there are (those of users, access lists, capabilities), whether a command changed them, and
giving a file exactly those it should have. Does not own: permissions (apply, stage), naming what is left out (upper).
A file keeps the attributes of the file it replaces. A new file has none but the access list that its folder hands on.
Attributes of an overlay's layers are nobody's. The mark of fs.patch tells who wrote a content, so other content never
carries it.
"""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from palyra.adapters.files.partial import MARK

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
CAPABILITY = "security.capability"
_LAYERS = ("user.overlay.", "trusted.overlay.")
_CARRIED = ("user.", "trusted.")
_ABSENT = (errno.ENOTSUP, errno.ENODATA, errno.EACCES, errno.EPERM, errno.ENOENT)
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_GROUP, _MASK = 0x04, 0x10
_OF_MODE = (0x01, _MASK, 0x20)  # What the owner, the mask and all others may: a file's permissions say that.

Attributes = dict[str, bytes]


def read_attributes(file: int | str) -> Attributes:
    """Returns what an open file or a path has; nothing where the file system knows no attributes. Follows no link."""
    follows = not isinstance(file, str)
    names: list[str] = []
    found: Attributes = {}
    with _absent():
        names += os.listxattr(file, follow_symlinks=follows)
    for name in filter(_is_ours, names):
        with _absent():
            found[name] = os.getxattr(file, name, follow_symlinks=follows)
    return found


def handed_on(folder: int) -> Attributes:
    """Returns what a new folder gets from the one that holds it. A new file gets no default of its own."""
    default = read_attributes(folder).get(DEFAULT)
    return {ACCESS: default, DEFAULT: default} if default is not None else {}


def set_attributes(file: int, wanted: Attributes) -> None:
    """Gives an open file exactly these. The permissions have to be set afterwards: an access list holds them too."""
    found = read_attributes(file)
    for name in found.keys() - wanted.keys() - {CAPABILITY}:
        os.removexattr(file, name)
    for name, value in wanted.items():
        if found.get(name) != value:
            os.setxattr(file, name, value)


def kept_attributes(found: Attributes) -> Attributes:
    """Returns what other content in the same place keeps."""
    return {
        name: value
        for name, value in found.items()
        if name == ACCESS or (name.startswith(_CARRIED) and not name.startswith(_LAYERS) and name != MARK)
    }


def show_attributes(root: str, upper: str) -> None:
    """Gives the top folder of an overlay what the root has, so that a command sees that and new files inherit it."""
    seen = {name: value for name, value in read_attributes(root).items() if _is_seen(name)}
    file = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with _absent():
            set_attributes(file, seen)
    finally:
        os.close(file)


def is_changed(before: Attributes, after: Attributes) -> bool:
    """Tells whether a command changed the attributes of what it found. A mark that went with its content is no change."""
    names = {*before, *after} - ({MARK} - after.keys())
    return any(_meaning(before, name) != _meaning(after, name) for name in names if _is_seen(name))


def is_added(handed: Attributes, after: Attributes) -> bool:
    """Tells whether something new has more than its folder hands on."""
    return any(_meaning(after, name) not in (None, _meaning(handed, name)) for name in after if _is_seen(name))


def plain_mode(mode: int, attributes: Attributes) -> int:
    """Returns the permissions without the access list: what stands for the group there is what any of the list may."""
    entries = _ENTRY.iter_unpack(attributes.get(ACCESS, b"")[_HEAD.size :])
    return next((mode & ~0o070 | mode & allowed << 3 for tag, allowed, _ in entries if tag == _GROUP), mode)


def _is_ours(name: str) -> bool:
    return name in (ACCESS, DEFAULT, CAPABILITY) or name.startswith(_CARRIED)


def _is_seen(name: str) -> bool:
    """Attributes that only the machine's root sees are not in a draft."""
    return not name.startswith((*_LAYERS, "trusted."))


def _meaning(attributes: Attributes, name: str) -> object:
    value = attributes.get(name)
    return _beyond_mode(value) if name == ACCESS and value is not None else value


def _beyond_mode(access: bytes) -> object:
    """Returns the entries of an access list that the permissions do not show; None if there are none."""
    entries = list(_ENTRY.iter_unpack(access[_HEAD.size :]))
    if all(tag != _MASK for tag, _, _ in entries):
        return None
    return tuple(entry for entry in entries if entry[0] not in _OF_MODE)


@contextmanager
def _absent() -> Iterator[None]:
    """What is missing, or cannot be seen by the daemon's user, counts as absent."""
    try:
        yield
    except OSError as cause:
        if cause.errno not in _ABSENT:
            raise
