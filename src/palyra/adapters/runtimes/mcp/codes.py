"""Error codes by which our side tells of a request that has no answer, in the place of the answer.

Does not own: what each leads to (connection).
A server may send the same codes. A transport replaces those, because then there is an answer (is_own).
"""

TOO_LARGE_CODE = -32099  # The answer was thrown away for its size.
NO_ANSWER_CODE = -32098  # The request was sent, and what came back is no answer to it.
NO_SESSION_CODE = -32097  # The server refused the request because of its session, or seems to.


def is_own(code: int) -> bool:
    """Tells whether we or the package give this code to a request without an answer."""
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    return code in (CONNECTION_CLOSED, REQUEST_TIMEOUT, TOO_LARGE_CODE, NO_ANSWER_CODE, NO_SESSION_CODE)
