"""How many examples a costly property test takes.

Owns: the few of the suite and the many of the campaign, which runs every file that imports this one.
Does not own: tests whose examples cost little; the profile says how many those take (conftest).
"""

import os

LONG_FACTOR = 50  # Minutes instead of seconds for each test.


def examples(count: int) -> int:
    """Returns the count itself, or far more under the profile `long`."""
    return count * LONG_FACTOR if os.environ.get("HYPOTHESIS_PROFILE") == "long" else count
