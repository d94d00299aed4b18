"""Where runs come from. Owns: behind which origins a person can be asked. Not: who that person is.

An origin is a kind, with a name of its own behind a colon where there are several of the kind: `http`, `routine:nightly`.
"""

ATTENDED = frozenset({"http", "console", "cli", "grpc"})  # Everything else is headless: routine, v1, mcp, webhook.


def can_ask(origin: str, *, waits_headless: bool) -> bool:
    """Whether an Ask of such a run waits for a person; where nobody is known to be there, configuration decides.

    Of a channel only its adapter knows whether it has an approver; it says so in its request, and without that word a channel
    counts as one that has none.
    """
    return kind_of(origin) in ATTENDED or waits_headless


def kind_of(origin: str) -> str:
    return origin.partition(":")[0]
