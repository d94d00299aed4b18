"""Renames that never replace what they did not expect: by the system call renameat2.

Owns: exchanging two files, and a rename that fails if the target exists. Does not own: which files (apply).
A file system that lacks them gets the nearest thing: a link and an unlink, or a plain rename.
"""

import ctypes
import errno
import os
from functools import cache

_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

Place = tuple[int, str]


def rename_new(source: Place, target: Place) -> None:
    """Renames; raises FileExistsError if something is there."""
    try:
        _renameat2(source, target, _NOREPLACE)
    except OSError as cause:
        if cause.errno not in _UNSUPPORTED:
            raise
        os.link(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0], follow_symlinks=False)
        os.unlink(source[1], dir_fd=source[0])


def exchange(left: Place, right: Place) -> bool:
    """Exchanges two files. Returns False, and does nothing, where the file system cannot."""
    try:
        _renameat2(left, right, _EXCHANGE)
    except OSError as cause:
        if cause.errno in _UNSUPPORTED:
            return False
        raise
    return True


def _renameat2(source: Place, target: Place, flags: int) -> None:
    call = _system_call()
    if call is None:
        raise OSError(errno.ENOSYS, "renameat2 is missing")
    if call(source[0], os.fsencode(source[1]), target[0], os.fsencode(target[1]), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target[1])


@cache
def _system_call() -> "ctypes._NamedFuncPointer | None":
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call
