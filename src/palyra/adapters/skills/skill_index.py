"""The index of skills: which there are for a workspace, which of a name counts, and what their marks mean.

Does not own: opening a skill in a run (adapters.tools.skill_open).
Invariants: a skill of a workspace never takes the place of one of the home or of the bundle. It is trusted only while
its folder has the hash that a person accepted. An opened skill is read and hashed in the same moment. Listing for a
prompt checks file stamps and reads again what changed. In a workspace it checks accepted skills alone, so that whoever
writes there cannot make turns slow.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock

import msgspec
import structlog
from msgspec.structs import replace

from palyra.adapters.skills.folder import (
    Base,
    Content,
    SkillRefused,
    Stamp,
    holds,
    names_in,
    opened,
    read_content,
    stamp_of,
)
from palyra.adapters.skills.front_matter import SkillManifest, is_skill_name, read_manifest
from palyra.adapters.skills.marks import Marks, SkillKey, SkillMark
from palyra.core.errors import Invalid, NotFound, PalyraError
from palyra.core.skills import SkillCard, SkillFile, SkillPlace, SkillStatus, is_offered, require_change
from palyra.core.spelling import spell_out
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX
from palyra.core.trust import Trust
from palyra.ports.skills import SkillText, SkillWish, unknown

BUNDLED = Path(__file__).parent / "bundled"
MANIFEST_NAME = "SKILL.md"
FILE_SHOWN_BYTES_MAX = 64 * 1024
KNOWN_MAX = 1024  # Limits the skills that are cached; beyond it the cache starts again.
NAME_SHOWN_MAX = 64

log = structlog.get_logger()

_Names = Callable[[int, Base], Iterable[str]]


class _Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A skill's folder as it was read, without its bodies."""

    name: str
    manifest: SkillManifest
    content: Content | None = None
    sha256: str = ""
    files: tuple[SkillFile, ...] = ()


class FolderSkills:
    """Skills of a home, of a workspace, and those that come with the program.

    The skills that a prompt names may be `fresh_s` old. An opened skill is always read anew.
    """

    def __init__(self, home: Path, bundled: Path = BUNDLED, fresh_s: float = 0.0) -> None:
        self._fresh_s = fresh_s
        self._offered: dict[tuple[str, ...], tuple[float, tuple[SkillCard, ...]]] = {}
        self._marks = Marks(home / "skills.json")
        self._home = Base(place=SkillPlace.HOME, anchor=str(home / "skills"))
        self._bundled = Base(place=SkillPlace.BUNDLED, anchor=str(bundled))
        self._known: dict[tuple[str, str], tuple[Stamp, _Looked]] = {}
        self._lock = Lock()
        self._is_damage_told = False

    def offered(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        now_s = time.monotonic()
        found = self._offered.get(workspace)
        if found is None or now_s - found[0] >= self._fresh_s:
            cards = self._offered_now(workspace)
            # It is the very same object while nothing changes, so that callers can cache what they make of it.
            cards = found[1] if found is not None and found[1] == cards else cards
            found = self._offered[workspace] = (now_s, cards)
        return found[1]

    def _offered_now(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        try:
            cards = self._trusted_cards(workspace)
        except PalyraError as error:
            if not self._is_damage_told:
                log.error("skills_not_offered", code=error.code, message=error.message)
            self._is_damage_told = True
            return ()
        self._is_damage_told = False
        return tuple(card for card in cards if is_offered(card))

    def cards(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        return self._cards(workspace, self._marks.all(), lambda folder, _base: names_in(folder))

    def read(self, wish: SkillWish) -> SkillText:
        card, looked = self._find(wish)
        return SkillText(card=card, text=looked.manifest.body if card.problem is None else "")

    def read_file(self, wish: SkillWish, path: str) -> SkillText:
        card, looked = self._find(wish)
        body = looked.content.bodies.get(path) if looked.content is not None else None
        if body is None:
            # The names are left out: in a workspace they are a stranger's words.
            raise NotFound("skill_file_unknown", f"the skill {wish.name} has no such file; opening it lists its files")
        return SkillText(card=card, text=_decode(body, path))

    def mark(self, wish: SkillWish, status: SkillStatus, sha256: str | None = None) -> SkillCard:
        card, _ = self._find(wish)
        require_change(card, status, sha256)
        is_bound = card.place is SkillPlace.WORKSPACE and status is SkillStatus.ACTIVE
        bound = card.sha256 if is_bound else ""
        self._marks.put(SkillMark(place=card.place, name=card.name, status=status, root=card.root, sha256=bound))
        self._offered.clear()
        return self._find(replace(wish, place=card.place))[0]

    def _trusted_cards(self, workspace: tuple[str, ...]) -> tuple[SkillCard, ...]:
        marks = self._marks.all()
        # These are marked in any workspace: a skill that nobody accepted hides an accepted one of a later workspace.
        marked = sorted({key.name for key in marks if key.place is SkillPlace.WORKSPACE})

        def trusted_names(folder: int, base: Base) -> Iterable[str]:
            if base.place is not SkillPlace.WORKSPACE:
                return names_in(folder)
            return [name for name in marked if holds(folder, name)]

        return self._cards(workspace, marks, trusted_names)

    def _cards(
        self, workspace: tuple[str, ...], marks: dict[SkillKey, SkillMark], names: _Names
    ) -> tuple[SkillCard, ...]:
        cards: list[SkillCard] = []
        taken: dict[str, SkillPlace] = {}
        for base in self._bases(workspace):
            for looked in self._looks(base, names):
                cards.append(_card(base, looked, marks, taken.get(looked.name)))
                taken.setdefault(looked.name, base.place)
        return tuple(cards)

    def _bases(self, workspace: tuple[str, ...]) -> Iterator[Base]:
        yield self._home
        yield self._bundled
        for root in dict.fromkeys(os.path.realpath(root) for root in workspace):
            yield Base(place=SkillPlace.WORKSPACE, anchor=root, steps=("skills",), root=root)

    def _looks(self, base: Base, names: _Names) -> Iterator[_Looked]:
        with opened(base) as folder:
            looks = [] if folder is None else [self._look(folder, name, base) for name in names(folder, base)]
        return iter([looked for looked in looks if not _is_no_skill(base, looked)])

    def _look(self, folder: int, name: str, base: Base) -> _Looked:
        """Returns the cached folder if its stamps are the same.

        A change too quick for them is seen when the skill is opened.
        """
        key = (f"{base.anchor}/{'/'.join(base.steps)}", name)
        try:
            stamp = stamp_of(folder, name)
        except SkillRefused as refused:
            return _refused(name, refused)
        with self._lock:
            before = self._known.get(key)
        if before is not None and before[0] == stamp:
            return before[1]
        read = _read(folder, name)
        looked = replace(read, content=None, manifest=replace(read.manifest, body=""))
        with self._lock:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = (stamp, looked)
        return looked

    def _find(self, wish: SkillWish) -> tuple[SkillCard, _Looked]:
        """Returns the card and the bytes of one skill, read now and never from the cache.

        Raises NotFound if there is none.
        """
        marks = self._marks.all()
        hidden_by: SkillPlace | None = None
        for base in self._bases(wish.workspace):
            looked = _read_from(base, wish.name)
            if looked is not None and _is_no_skill(base, looked):
                continue
            if looked is not None and wish.place in (None, base.place):
                return _card(base, looked, marks, hidden_by), looked
            if looked is not None:
                hidden_by = hidden_by or base.place
        raise unknown(wish)


def _read_from(base: Base, name: str) -> _Looked | None:
    if not is_skill_name(name):
        return None
    with opened(base) as folder:
        return None if folder is None or not holds(folder, name) else _read(folder, name)


def _read(folder: int, name: str) -> _Looked:
    try:
        content = read_content(folder, name)
    except SkillRefused as refused:
        return _refused(name, refused)
    raw = content.bodies.get(MANIFEST_NAME)
    missing = SkillManifest(problems=(f"there is no {MANIFEST_NAME} in it",))
    manifest = missing if raw is None else read_manifest(raw, name)
    return _Looked(name=_shown(name), manifest=manifest, content=content, sha256=content.sha256, files=content.files)


def _card(base: Base, looked: _Looked, marks: dict[SkillKey, SkillMark], hidden_by: SkillPlace | None) -> SkillCard:
    manifest = looked.manifest
    standing = _standing(base, looked, marks.get(SkillKey(place=base.place, name=looked.name, root=base.root)))
    problem = "; ".join(manifest.problems) or None
    hidden = (f"another of this name counts: that of the {hidden_by.value}",) if hidden_by is not None else ()
    long = (_TOO_LONG,) if _size(looked) > OUTPUT_INLINE_BYTES_MAX else ()
    return SkillCard(
        name=looked.name,
        place=base.place,
        trust=standing.trust,
        status=standing.status,
        description=manifest.description,
        root=base.root,
        sha256=looked.sha256,
        allowed_tools=manifest.allowed_tools,
        unknown_tools=manifest.unknown_tools,
        files=looked.files,
        problem=problem,
        notes=(*standing.notes, *hidden, *manifest.notes, *long),
        can_open=standing.can_open and problem is None and hidden_by is None,
    )


_TOO_LONG = "its text is long, so a model sees its ends at once and pages through the rest"


class _Standing(msgspec.Struct, frozen=True):
    """What a person's mark, or none, makes of a skill."""

    status: SkillStatus
    trust: Trust
    can_open: bool
    notes: tuple[str, ...] = ()


def _standing(base: Base, looked: _Looked, mark: SkillMark | None) -> _Standing:
    if base.place is not SkillPlace.WORKSPACE:
        status = mark.status if mark is not None else SkillStatus.ACTIVE
        trust = Trust.OPERATOR if base.place is SkillPlace.HOME else Trust.SYSTEM
        if mark is not None and mark.sha256 and mark.sha256 != looked.sha256:
            return _Standing(SkillStatus.QUARANTINED, trust, False, ("it has changed since it was accepted",))
        return _Standing(status, trust, status is SkillStatus.ACTIVE)
    if mark is None:
        return _Standing(SkillStatus.QUARANTINED, Trust.EXTERNAL, True, ("nobody has accepted it",))
    if mark.status is not SkillStatus.ACTIVE:
        return _Standing(mark.status, Trust.EXTERNAL, False)
    if mark.sha256 != looked.sha256 or not looked.sha256:
        return _Standing(SkillStatus.QUARANTINED, Trust.EXTERNAL, True, ("it has changed since it was accepted",))
    return _Standing(SkillStatus.ACTIVE, Trust.OPERATOR, True)


def _is_no_skill(base: Base, looked: _Looked) -> bool:
    """Tells whether a folder is no skill. A project may use a folder `skills` for something else.

    Only in the home is a folder without a manifest a mistake.
    """
    return base.place is SkillPlace.WORKSPACE and bool(looked.sha256) and _size(looked) < 0


def _size(looked: _Looked) -> int:
    """Returns the bytes of the manifest; -1 if there is none."""
    return next((file.bytes for file in looked.files if file.path == MANIFEST_NAME), -1)


def _refused(name: str, refused: SkillRefused) -> _Looked:
    return _Looked(name=_shown(name), manifest=SkillManifest(problems=(str(refused),)))


def _shown(name: str) -> str:
    """Returns a folder's name as it may be listed. A name that had to be changed cannot be a skill's anyway."""
    return spell_out(name[:NAME_SHOWN_MAX])


def _decode(body: bytes, path: str) -> str:
    if len(body) > FILE_SHOWN_BYTES_MAX:
        raise Invalid("file_too_large", f"{path} is larger than {FILE_SHOWN_BYTES_MAX} bytes and is not shown")
    try:
        text = body.decode()
    except UnicodeDecodeError as cause:
        raise Invalid("binary_file", f"{path} is no UTF-8 text; only text can be shown") from cause
    if "\x00" in text:
        raise Invalid("binary_file", f"{path} is a binary file; only text can be shown")
    return text
