"""The Skills port: lists, reads and marks skills.

Does not own: opening a skill in a run (the skill.open tool), how a skill narrows a run (core.skills).
All methods but `offered` may read many files: call them in a thread.
"""

from typing import Protocol

import msgspec

from palyra.core.errors import NotFound
from palyra.core.skills import SkillCard, SkillPlace, SkillStatus


class SkillWish(msgspec.Struct, frozen=True, kw_only=True):
    """Names a skill, and whose workspace counts. Without a place, the skill that wins by this name is meant."""

    name: str
    workspace: tuple[str, ...] = ()
    place: SkillPlace | None = None


class SkillText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a skill and what is known of it, both from the same bytes."""

    card: SkillCard
    text: str


class Skills(Protocol):
    def offered(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        """Returns what a prompt may name; the same object while nothing changes.

        The call is cheap, because it happens before every model call, on the event loop. It never raises.
        """
        ...

    def cards(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        """Returns all skills, broken ones with their problem, in the order of their places and then of their names."""
        ...

    def read(self, wish: SkillWish) -> SkillText:
        """Reads the instructions now. Raises NotFound if there is no such skill; a broken skill has an empty text."""
        ...

    def read_file(self, wish: SkillWish, path: str) -> SkillText:
        """Reads a text file of the skill's folder. Raises NotFound or Invalid if there is none."""
        ...

    def mark(self, wish: SkillWish, status: SkillStatus, sha256: str | None = None) -> SkillCard:
        """Is durable when it returns. Raises Conflict if the skill is broken, or no longer has this hash."""
        ...


class NoSkills:
    """Used where there are no skills."""

    def offered(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        return ()

    def cards(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        return ()

    def read(self, wish: SkillWish) -> SkillText:
        raise unknown(wish)

    def read_file(self, wish: SkillWish, path: str) -> SkillText:
        raise unknown(wish)

    def mark(self, wish: SkillWish, status: SkillStatus, sha256: str | None = None) -> SkillCard:
        raise unknown(wish)


def unknown(wish: SkillWish) -> NotFound:
    where = f" at the place {wish.place.value}" if wish.place is not None else ""
    return NotFound("skill_unknown", f"there is no skill {wish.name!r}{where}; palyra skills list shows them")
