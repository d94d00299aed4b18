"""Ids of requests: what a client and the log call one request by.

Owns: taking the client's own id, or making one. Does not own: where it is logged (responses).
Invariant: an id has letters, digits and a few marks, so that it can stand in a log and in a header as it is.
"""

import re
import secrets

from starlette.requests import Request

REQUEST_ID_HEADER = b"x-request-id"
_FITTING = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def request_id_of(request: Request) -> str:
    """The client's id if it is fit to be repeated, else a new one."""
    given = request.headers.get(REQUEST_ID_HEADER.decode("ascii"), "")
    return given if _FITTING.fullmatch(given) is not None else secrets.token_hex(8)
