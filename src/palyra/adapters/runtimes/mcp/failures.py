"""How a request to a server can fail. Owns: the ways, in our words. Not: what a call then comes to (tools)."""


class ServerRefused(Exception):
    """The server answered with an error. `said` is the server's text: nothing to believe, and nothing for a log."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(f"the server refused with code {code}")
        self.said = said
        self.code = code


class ConnectionLost(Exception):
    """The connection ended before the answer came. What was asked may have happened."""


class TimedOut(Exception):
    """No answer in time. What was asked may have happened."""


class TooLarge(Exception):
    """The answer was thrown away unread. What was asked has happened."""


class Down(Exception):
    """There is no connection, so nothing was sent. Says why."""


class Unfit(Exception):
    """The server cannot be used as it is. Says why, in our words."""
