"""The LearnedSkills port: puts a procedure among the skills of the home, and takes it away again.

Does not own: whether it may (a person accepts it), what it says (core.learning.procedures).
Both methods read and write files: call them in a thread.
"""

from typing import Protocol

from palyra.core.errors import Unavailable
from palyra.core.learning.procedures import SkillDraft


class LearnedSkills(Protocol):
    def install(self, draft: SkillDraft) -> str:
        """Makes the skill active as it is, and returns its hash. Doing it again changes nothing.

        It is marked as quarantined and bound to its hash before its files appear, so a crash leaves nothing in use.
        """
        ...

    def remove(self, draft: SkillDraft) -> None:
        """Removes a skill that nobody changed. One that somebody changed is disabled and stays."""
        ...


class NoLearnedSkills:
    """Used where there is no home to put skills into."""

    def install(self, draft: SkillDraft) -> str:
        raise Unavailable("skills_unavailable", "this daemon keeps no skills", is_retryable=False)

    def remove(self, draft: SkillDraft) -> None:
        """There is nothing to remove."""
