"""The Skills port. Owns: listing, reading and marking skills. Not: opening one in a run (the tool), nor how it narrows (core).

All but `offered` may read many files: call them in a thread.
"""

from typing import Protocol

import msgspec

from palyra.core.errors import NotFound
from palyra.core.skills import SkillCard, SkillPlace, SkillStatus


class SkillWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which skill, by name and for whose workspace; without a place, the one that counts by this name."""

    name: str
    workspace: tuple[str, ...] = ()
    place: SkillPlace | None = None


class SkillText(msgspec.Struct, frozen=True, kw_only=True):
    """Text of a skill, and what is known of it, both of the same bytes."""

    card: SkillCard
    text: str


class Skills(Protocol):
    def offered(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        """What a prompt may name; the same object while nothing changes.

        Cheap: it is asked before every model call, on the event loop. It never raises.
        """
        ...

    def cards(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        """All there are, the broken ones with their problem, in the order of their places and then of their names."""
        ...

    def read(self, wish: SkillWish) -> SkillText:
        """Its instructions, read now. NotFound where there is no such skill; of a broken one the text is empty."""
        ...

    def read_file(self, wish: SkillWish, path: str) -> SkillText:
        """A text file of its folder. NotFound or Invalid where there is none."""
        ...

    def mark(self, wish: SkillWish, status: SkillStatus, sha256: str | None = None) -> SkillCard:
        """Durable when it returns. Conflict where it is broken, or is not (any more) the one with this hash."""
        ...


class NoSkills:
    """Where there are none."""

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
