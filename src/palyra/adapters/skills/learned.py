"""Learned skills: procedures that a person accepted, as skills of the home, behind ports.learned_skills.

Owns: the order of marks and files. Does not own: what a skill says (core.learning.procedures), reading skills (skill_index).
Invariants: a skill in the home is active unless a mark says otherwise. So it is marked as quarantined, with its hash,
before its file appears, and as active, with the same hash, once the file has exactly these bytes.
"""

from pathlib import Path

from palyra.adapters.files.durable import clear_partials, ensure_folder, replace_whole, sync_folder
from palyra.adapters.skills.folder import Base, Content, SkillRefused, holds, opened, read_content
from palyra.adapters.skills.marks import Marks, SkillKey, SkillMark
from palyra.core.errors import Conflict
from palyra.core.learning.procedures import SkillDraft
from palyra.core.skills import SkillPlace, SkillStatus

MANIFEST_NAME = "SKILL.md"


class HomeLearnedSkills:
    def __init__(self, home: Path) -> None:
        self._folder = home / "skills"
        self._marks = Marks(home / "skills.json")

    def install(self, draft: SkillDraft) -> str:
        body = draft.text.encode()
        wanted = Content({MANIFEST_NAME: body}).sha256
        mark = self._marks.all().get(SkillKey(place=SkillPlace.HOME, name=draft.name))
        is_active = mark is not None and mark.status is SkillStatus.ACTIVE and mark.sha256 == wanted
        if is_active and self._sha256(draft.name) == wanted:
            return wanted
        self._mark(draft.name, SkillStatus.QUARANTINED, wanted)
        file = self._folder / draft.name / MANIFEST_NAME
        ensure_folder(file.parent)
        clear_partials(file)
        replace_whole(file, body)
        if self._sha256(draft.name) != wanted:
            message = f"there are other files in the folder of the skill {draft.name}; look at them first"
            raise Conflict("skill_taken", message, is_retryable=False)
        self._mark(draft.name, SkillStatus.ACTIVE, wanted)
        return wanted

    def remove(self, draft: SkillDraft) -> None:
        wanted = Content({MANIFEST_NAME: draft.text.encode()}).sha256
        file = self._folder / draft.name / MANIFEST_NAME
        if not file.parent.is_dir():
            return
        self._mark(draft.name, SkillStatus.DISABLED, "")
        clear_partials(file)
        if self._sha256(draft.name) not in (wanted, Content({}).sha256):
            return
        file.unlink(missing_ok=True)
        file.parent.rmdir()
        sync_folder(self._folder)

    def _sha256(self, name: str) -> str:
        with opened(Base(place=SkillPlace.HOME, anchor=str(self._folder))) as folder:
            if folder is None or not holds(folder, name):
                return ""
            try:
                return read_content(folder, name).sha256
            except SkillRefused:
                return ""

    def _mark(self, name: str, status: SkillStatus, sha256: str) -> None:
        self._marks.put(SkillMark(place=SkillPlace.HOME, name=name, status=status, sha256=sha256))
