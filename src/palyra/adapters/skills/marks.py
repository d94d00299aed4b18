"""Marks of skills: the file `skills.json` of a home says which were accepted, put away or taken out of use.

Owns: what the file says. Does not own: how it is locked and replaced (adapters.files).
Invariants: a change starts from what the file says under its lock. A damaged file is never guessed at: no skill is
offered or opened until it is repaired.
"""

from pathlib import Path

import msgspec

from palyra.adapters.files.private import NO_OTHER_WRITER, FileKind, ParsedFile, PrivateFile
from palyra.core.errors import Corrupt
from palyra.core.skills import SkillPlace, SkillStatus

MARKS_MAX = 10_000
_KIND = FileKind(
    noun="skills_file",
    remedy="mend it, or remove it and accept skills again",
    bytes_max=4 * 1024 * 1024,
    forbidden=NO_OTHER_WRITER,
)


class SkillKey(msgspec.Struct, frozen=True, kw_only=True):
    """Which skill a mark is about. `root` is the workspace, if the skill lies in one."""

    place: SkillPlace
    name: str
    root: str = ""


class SkillMark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided.

    For a workspace's skill, `active` holds only for the folder with this hash. A learned skill of the home has a hash
    too, and is quarantined as soon as its folder has another.
    """

    place: SkillPlace
    name: str
    status: SkillStatus
    root: str = ""
    sha256: str = ""

    @property
    def key(self) -> SkillKey:
        return SkillKey(place=self.place, name=self.name, root=self.root)


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    marks: tuple[SkillMark, ...]
    version: int = 1


class Marks:
    def __init__(self, path: Path) -> None:
        self._file = PrivateFile(path, _KIND)
        self._marks = ParsedFile(self._file, self._parse)

    def all(self) -> dict[SkillKey, SkillMark]:
        """Returns what the file says now. Raises Corrupt if it cannot be read."""
        return self._marks.now()

    def put(self, mark: SkillMark) -> None:
        with self._file.locked() as replace:
            known = self._marks.read() | {mark.key: mark}
            if len(known) > MARKS_MAX:
                path = self._file.path
                raise Corrupt("skills_full", f"{path} would hold more than {MARKS_MAX} marks; remove old ones")
            replace(msgspec.json.format(msgspec.json.encode(_File(marks=tuple(known.values())))))

    def _parse(self, data: bytes | None) -> dict[SkillKey, SkillMark]:
        if data is None:
            return {}
        try:
            marks = msgspec.json.decode(data, type=_File).marks
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
            raise self._file.damaged("is damaged, so no skill is used") from cause
        return {mark.key: mark for mark in marks}
