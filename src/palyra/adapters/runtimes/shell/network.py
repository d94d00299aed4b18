"""Gives a sandbox access to the guarded proxy: its mounts, script and variables.

Does not own: the proxy (adapters.net).
The sandbox keeps its own, empty network. The proxy's socket is mounted into it, with a small program that passes
connections of a port on to the socket. The usual variables tell programs that port. So the proxy's guard judges every
target, and a program that does not use the proxy reaches nothing.
"""

import os
import shlex
import sys
from pathlib import Path

from palyra.adapters.runtimes.shell.mounts import PRIVATE

PORT = 3128
FORWARDER = f"{PRIVATE}/forward"
SOURCE = Path(__file__).with_name("forward.py")
_SOCKET = f"{PRIVATE}/proxy"
_URL = f"http://127.0.0.1:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
NETWORK_ENVIRONMENT = {
    "HTTP_PROXY": _URL,
    "HTTPS_PROXY": _URL,
    "NO_PROXY": _LOCAL,
    "http_proxy": _URL,
    "https_proxy": _URL,
    "no_proxy": _LOCAL,
}


def network_mounts(proxy: str) -> list[str]:
    """Returns the mounts of the socket and of this interpreter, which runs the program."""
    made = ["--ro-bind", proxy, _SOCKET]
    prefix = os.path.realpath(sys.base_prefix)
    return made if prefix == "/usr" else [*made, "--ro-bind", prefix, prefix]


def network_script() -> str:
    """Returns the script that bash reads after the limits are set."""
    python = os.path.realpath(sys.executable)
    words = " ".join(shlex.quote(word) for word in (python, "-ISE", FORWARDER, str(PORT), _SOCKET))
    complaint = "{ echo 'the way to the network could not be opened' >&2; exit 125; }"
    return f"{words} </dev/null >/dev/null 2>&1 || {complaint}\n"
