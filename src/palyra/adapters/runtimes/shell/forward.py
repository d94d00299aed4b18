"""Passes connections of a port inside a sandbox on to the guarded proxy's socket.

Does not own: where connections may lead (adapters.net).
It runs inside the sandbox as a program of its own, with nothing but Python's standard modules. It returns when the port
is open and goes on in the background. The command may end it, and then has no network.
"""

import os
import socket
import sys
import threading
from contextlib import suppress

PIECE_BYTES = 64 * 1024
WAITING_MAX = 64


def main(port: int, path: str) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=WAITING_MAX)
    if os.fork():
        os._exit(0)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve, args=(client, path), daemon=True).start()


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as proxy:
        try:
            proxy.connect(path)
        except OSError:
            return  # The client sees a closed connection, as with any proxy that is gone.
        back = threading.Thread(target=_copy, args=(proxy, client), daemon=True)
        back.start()
        _copy(client, proxy)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
