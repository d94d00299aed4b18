"""The ways in which a request to an MCP server can fail, as exceptions.

Does not own: the tool result that a failure leads to (tools).
"""


class ServerRefused(Exception):
    """The server answered with an error. `said` is the server's text: it is not to be believed, nor to be logged."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(f"the server refused with code {code}")
        self.said = said
        self.code = code


class SessionRefused(ServerRefused):
    """The server refused the request and seems not to know its session any more. Later requests may fail too."""


class ConnectionLost(Exception):
    """The connection ended before the answer came. The requested action may have happened."""


class AnswerLost(ConnectionLost):
    """Only this answer did not come, and the connection may still be good. The requested action may have happened."""


class TimedOut(Exception):
    """No answer came in time. The requested action may have happened."""


class TooLarge(Exception):
    """The answer was thrown away unread. The requested action has happened."""


class Down(Exception):
    """There is no connection, so nothing was sent. The text says why."""


class Unfit(Exception):
    """The server cannot be used as it is. The text says why, in our words."""
