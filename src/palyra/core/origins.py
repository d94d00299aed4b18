"""Where runs come from, and behind which origins a person can be asked.

Does not own: who that person is.
An origin is a kind. Where there are several of a kind, a colon and a name follow: `http`, `routine:nightly`.
"""

ATTENDED = frozenset({"http", "console", "cli", "grpc"})  # Every other origin is headless: routine, v1, mcp, webhook.


def can_ask(origin: str, *, waits_headless: bool) -> bool:
    """Tells whether an Ask of such a run waits for a person. Configuration decides for headless origins.

    Only its adapter knows whether a channel has an approver, and says so in the request. Otherwise a channel counts as
    one without an approver.
    """
    return kind_of(origin) in ATTENDED or waits_headless


def kind_of(origin: str) -> str:
    return origin.partition(":")[0]
