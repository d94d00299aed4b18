"""Ports for servers that tests start a moment later.

The kernel gives ports of its own range to whoever asks for any, other tests included. A port from there may be taken
before the server listens, so these come from below that range.
"""

import random
import socket
from pathlib import Path

_LOWEST = 12_000
_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_KERNELS_DEFAULT = 32_768


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody listens on. Tests of other processes are unlikely to draw the same."""
    beyond = int(_KERNELS.read_text().split()[0]) if _KERNELS.exists() else _KERNELS_DEFAULT
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(_LOWEST, beyond) if beyond > 2 * _LOWEST else 0
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
