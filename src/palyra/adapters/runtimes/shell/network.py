"""A sandbox with a way out. Owns: what is put into it so that programs reach the guarded proxy. Not: the proxy (adapters.net).

The sandbox keeps its own, empty network. The proxy's socket is put into it, and a small program that passes connections of a
port on to it; programs are told of that port in the usual variables. So every target is judged by the proxy's guard, and a
program that does not use the proxy reaches nothing.
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
    """The socket, and this interpreter, which runs the program."""
    made = ["--ro-bind", proxy, _SOCKET]
    prefix = os.path.realpath(sys.base_prefix)
    return made if prefix == "/usr" else [*made, "--ro-bind", prefix, prefix]


def network_script() -> str:
    """Read by bash after the limits are set."""
    python = os.path.realpath(sys.executable)
    words = " ".join(shlex.quote(word) for word in (python, "-ISE", FORWARDER, str(PORT), _SOCKET))
    complaint = "{ echo 'the way to the network could not be opened' >&2; exit 125; }"
    return f"{words} </dev/null >/dev/null 2>&1 || {complaint}\n"
