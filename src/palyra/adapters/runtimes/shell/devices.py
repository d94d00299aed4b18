"""Restores the modes of the machine's devices that a sandbox shares.

Does not own: which devices a sandbox has (mounts).
A daemon of root owns these devices, and so do its commands, which may therefore change their modes. bubblewrap cannot
make a device read-only and leave it usable. So the modes are restored while a command runs and when it has ended. Other
daemons own no device.
"""

import os
import stat
from contextlib import suppress

import msgspec

_SHARED = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class DeviceModes(msgspec.Struct, frozen=True):
    """The modes as they were before the first command."""

    modes: tuple[tuple[str, int], ...] = ()

    def put_back(self) -> None:
        for path, mode in self.modes:
            with suppress(FileNotFoundError):
                if stat.S_IMODE(os.stat(path).st_mode) != mode:
                    os.chmod(path, mode)


def device_modes() -> DeviceModes:
    if os.geteuid() != 0:
        return DeviceModes()
    return DeviceModes(tuple((path, stat.S_IMODE(os.stat(path).st_mode)) for path in _SHARED if os.path.exists(path)))
