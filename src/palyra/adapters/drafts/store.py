"""All drafts of a daemon: the ports Drafts and DraftWorlds over folders on disk.

Owns: the order of begin, seal, apply and forget, and threads for what blocks. Does not own: the rules (core.drafts).
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from palyra.adapters.drafts.apply import Applier
from palyra.adapters.drafts.diffs import compare_changes, show_changes
from palyra.adapters.drafts.folders import STAGE_NAME, UNDO_NAME, DraftFolders, SealedSet
from palyra.adapters.drafts.git_changes import find_git_changes
from palyra.adapters.drafts.git_objects import find_large_files, settle_made_anew
from palyra.adapters.drafts.git_texts import find_unlike, read_texts, show_git_texts
from palyra.adapters.drafts.git_view import LayeredFiles
from palyra.adapters.drafts.layers import SessionLayers
from palyra.adapters.drafts.trash import DraftTrash
from palyra.adapters.drafts.turns import RootTurns
from palyra.adapters.drafts.upper import UpperReader
from palyra.adapters.files.archives import archive_draft, kept_files
from palyra.adapters.files.homes import is_wide_dot_file
from palyra.adapters.files.known_links import OBEYED, Links, find_links
from palyra.adapters.files.reviewed import find_unseen
from palyra.core.drafts.changes import ChangeSet, LinkedChange, in_order, is_folder, place_of
from palyra.core.drafts.git import GitReach, GitText, GitWrite
from palyra.core.drafts.outside import STAGE_PREFIX
from palyra.core.errors import Corrupt, NotFound, PalyraError
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.ids import EffectId, SessionId
from palyra.ports.drafts import (
    CARD_ROOM,
    AppliedDraft,
    Contents,
    DraftConflict,
    DraftFailure,
    OverlayRoot,
    PreviewRoom,
    Review,
    ShownChanges,
)

_NEVER_NS = 1 << 62  # A layer has no beginning: what lies in the workspace now is what it is compared with.
TICK_S = 0.02  # Longer than a tick of the clock by which file systems tell when something changed.
NAMED_CHARS_MAX = 64 << 20  # Of the names of all links that lead to changes. What has one beyond that counts as obeyed.


class FileDrafts:
    """Implements both ports. A draft that runs is known in memory; a sealed one is on disk."""

    def __init__(self, home: Path) -> None:
        self._folders = DraftFolders(home)
        self._layers = SessionLayers(home)
        self._turns = RootTurns()
        self._running: dict[EffectId, tuple[tuple[OverlayRoot, ...], int]] = {}
        self._unpacked: set[EffectId] = set()
        self.home = home
        self.trash = DraftTrash(home)

    async def begin(
        self, effect_id: EffectId, roots: tuple[str, ...], *, is_alone: bool, session_id: str = ""
    ) -> tuple[OverlayRoot, ...]:
        has_begun = False
        try:
            if is_alone:
                await self._turns.have_alone(effect_id, roots)
                await asyncio.sleep(TICK_S)  # What was applied just before would count as changed after the beginning.
            await self._remove(effect_id)
            made, began_ns = self._folders.make(effect_id, roots)
            if any(self._layers.of(session_id, root) for root in roots):
                made = await asyncio.to_thread(self._with_layers, made, session_id)
            self._running[effect_id] = (made, began_ns)
            has_begun = True
            return made
        finally:
            if not has_begun:
                await self._turns.release(effect_id)

    async def seal(self, effect_id: EffectId) -> ChangeSet:
        made, began_ns = self._running.pop(effect_id)
        if not any(_listed(each.upper) for each in made):
            return ChangeSet()
        return await asyncio.to_thread(self._seal, effect_id, made, began_ns)

    async def read(self, effect_id: EffectId) -> ChangeSet:
        return (await asyncio.to_thread(self._folders.read_set, effect_id)).change_set

    async def preview(
        self, effect_id: EffectId, changes: tuple[FileChange, ...], room: PreviewRoom = CARD_ROOM
    ) -> ShownChanges:
        sealed = await asyncio.to_thread(self._folders.read_set, effect_id)
        return await asyncio.to_thread(show_changes, changes, self._uppers(effect_id, sealed), room)

    async def apply(
        self, effect_id: EffectId, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        sealed = await asyncio.to_thread(self._sealed_with, effect_id, changes)
        roots = tuple(sorted({change.root for change in changes}))
        await self._turns.begin(effect_id, roots)
        try:
            # Shielded: a cancel must not let another draft in while this one is being applied.
            return await asyncio.shield(asyncio.to_thread(self._apply, effect_id, sealed, changes))
        except PalyraError as refused:
            return DraftFailure(message=refused.message)
        except OSError as cause:  # The root is gone: the applier itself returns what it meets.
            return DraftFailure(message=f"{cause.strerror or cause}; nothing of it was applied")
        finally:
            await self._turns.end(roots)
            await self._turns.release(effect_id)

    async def review(self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]) -> Review:
        return await asyncio.to_thread(self._review, effect_id, session_id, changes)

    async def layer(
        self, effect_id: EffectId, session_id: str, held: tuple[FileChange, ...], applied: tuple[FileChange, ...]
    ) -> None:
        if held or self._layers.has(session_id):
            await asyncio.shield(asyncio.to_thread(self._layer, effect_id, session_id, held, applied))

    async def kept(self, session_id: str) -> ChangeSet:
        return await asyncio.to_thread(self._kept, session_id)

    async def preview_kept(self, session_id: str, changes: tuple[FileChange, ...]) -> str:
        shown = await asyncio.to_thread(show_changes, changes, self._layers.roots_of(session_id), CARD_ROOM)
        return shown.text

    async def take_kept(
        self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        self._unpacked.add(effect_id)
        try:
            unpacked = await asyncio.to_thread(self._lift, effect_id, session_id, changes)
            done = await self.apply(effect_id, unpacked)
            if isinstance(done, AppliedDraft):
                await self.layer(effect_id, session_id, (), changes)
            return done
        finally:
            await self.forget(effect_id)

    async def forget_layers(self, session_id: str) -> None:
        await asyncio.to_thread(self._layers.forget, session_id)

    async def layered_sessions(self) -> tuple[SessionId, ...]:
        return await asyncio.to_thread(self._layers.sessions)

    async def read_git(self, effect_id: EffectId, writes: tuple[GitWrite, ...]) -> tuple[GitText, ...]:
        return await asyncio.to_thread(self._read_git, effect_id, writes)

    async def look_into_git(
        self, effect_id: EffectId, writes: tuple[GitWrite, ...], applied: frozenset[tuple[str, str]]
    ) -> tuple[GitText, ...]:
        return await asyncio.to_thread(self._look_into_git, effect_id, writes, applied)

    async def preview_git(self, texts: tuple[GitText, ...], room: PreviewRoom = CARD_ROOM) -> ShownChanges:
        return await asyncio.to_thread(show_git_texts, texts, room)

    async def archive(self, effect_id: EffectId) -> bytes | None:
        try:
            sealed = await asyncio.to_thread(self._folders.read_set, effect_id)
        except (NotFound, Corrupt):
            return None
        return await asyncio.to_thread(archive_draft, sealed.change_set.changes, self._uppers(effect_id, sealed))

    async def unpack(self, effect_id: EffectId, changes: tuple[FileChange, ...], contents: Contents) -> ChangeSet:
        self._unpacked.add(effect_id)
        return await asyncio.to_thread(self._unpack, effect_id, changes, contents)

    async def compare(self, changes: tuple[FileChange, ...], contents: Contents) -> str:
        return await asyncio.to_thread(compare_changes, changes, contents)

    async def release(self, effect_id: EffectId) -> None:
        await self._turns.release(effect_id)

    async def forget(self, effect_id: EffectId) -> None:
        self._running.pop(effect_id, None)
        await self._turns.release(effect_id)
        await self._remove(effect_id)
        self._unpacked.discard(effect_id)

    async def drop(self, effect_id: EffectId) -> None:
        self._running.pop(effect_id, None)
        await self._turns.release(effect_id)
        self.trash.put(self._folders.of(effect_id))

    async def leftovers(self) -> tuple[EffectId, ...]:
        """Returns the drafts on disk, without those that were unpacked here and are not forgotten yet."""
        listed = await asyncio.to_thread(self._folders.list_effects)
        return tuple(effect_id for effect_id in listed if effect_id not in self._unpacked)

    async def _remove(self, effect_id: EffectId) -> None:
        """Removes the folder of a draft: a large one in a thread, so that nobody waits for it."""
        folder = self._folders.of(effect_id)
        if not folder.exists():
            return
        if any(_listed(str(upper)) for upper in folder.glob("*/upper")):
            await asyncio.to_thread(self._folders.forget, effect_id)
        else:
            self._folders.forget(effect_id)

    def _seal(self, effect_id: EffectId, made: tuple[OverlayRoot, ...], began_ns: int) -> ChangeSet:
        found = [UpperReader(each.root, each.upper, began_ns, each.layer).read() for each in made]
        change_set = _joined(found)
        settled = in_order(settle_made_anew(change_set.changes))
        change_set = replace(change_set, changes=settled, has_layer=any(each.layer for each in made))
        if change_set.changes:
            roots = tuple(each.root for each in made)
            false_objects = tuple(write for each in found for write in each.git.writes)
            git = self._git_changes({each.root: each.upper for each in made}, change_set.changes, false_objects)
            wide = tuple(place_of(each) for each in change_set.changes if is_wide_dot_file(each.root, each.path))
            linked = _linked(roots, change_set.changes)
            change_set = replace(change_set, linked=linked, git=git, wide_dot_files=wide)
            self._folders.write_set(effect_id, SealedSet(roots=roots, change_set=change_set))
        return change_set

    def _with_layers(self, made: tuple[OverlayRoot, ...], session_id: str) -> tuple[OverlayRoot, ...]:
        return tuple(replace(each, layer=self._layers.begin(session_id, each.root)) for each in made)

    def _review(self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]) -> Review:
        layers = self._layers.roots_of(session_id)
        uppers = self._uppers(effect_id, self._folders.read_set(effect_id))
        unseen = find_unseen(changes, uppers, layers)
        size = self._layers.size_bytes(session_id) if unseen and layers else 0
        return Review(unseen, self._layers.folders(session_id, changes) if layers else frozenset(), size)

    def _layer(
        self, effect_id: EffectId, session_id: str, held: tuple[FileChange, ...], applied: tuple[FileChange, ...]
    ) -> None:
        roots = dict.fromkeys(change.root for change in (*held, *applied))
        uppers = self._uppers(effect_id, self._folders.read_set(effect_id))
        for root in roots:
            kept, gone = (tuple(each for each in changes if each.root == root) for changes in (held, applied))
            self._layers.put(session_id, kept, gone, uppers[root])

    def _kept(self, session_id: str) -> ChangeSet:
        layers = self._layers.roots_of(session_id)
        present = {root: layer for root, layer in layers.items() if os.path.isdir(root)}
        return _joined([UpperReader(root, layer, _NEVER_NS).read() for root, layer in present.items()])

    def _lift(self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
        """Links content of the layer into upper folders, as if a command had left it there."""
        layers = self._layers.roots_of(session_id)
        roots = tuple(dict.fromkeys(change.root for change in changes))
        made, _ = self._folders.make(effect_id, roots)
        uppers = {each.root: each.upper for each in made}
        for change in changes:
            if change.after_sha256 is not None and not is_folder(change):
                target = Path(uppers[change.root], change.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(f"{layers[change.root]}/{change.path}", target, follow_symlinks=False)
        change_set = ChangeSet(changes=in_order(changes), linked=_linked(roots, changes))
        self._folders.write_set(effect_id, SealedSet(roots=roots, change_set=change_set))
        return change_set.changes

    def _git_changes(
        self, uppers: dict[str, str], changes: tuple[FileChange, ...], false_objects: tuple[GitWrite, ...]
    ) -> GitReach:
        found = find_git_changes(LayeredFiles(uppers, changes))
        links = find_links(tuple(uppers), _one_a_folder(map(_whole, found.writes)))
        named = found.writes
        if links:
            named = tuple(replace(each, names=links.names_of(_whole(each))) for each in named)
        return replace(found, writes=(*false_objects, *find_large_files(changes), *named))

    def _read_git(self, effect_id: EffectId, writes: tuple[GitWrite, ...]) -> tuple[GitText, ...]:
        return read_texts(self._layered(effect_id), writes)

    def _layered(self, effect_id: EffectId) -> LayeredFiles:
        sealed = self._folders.read_set(effect_id)
        return LayeredFiles(self._uppers(effect_id, sealed), sealed.change_set.changes)

    def _look_into_git(
        self, effect_id: EffectId, writes: tuple[GitWrite, ...], applied: frozenset[tuple[str, str]]
    ) -> tuple[GitText, ...]:
        files = self._layered(effect_id)
        return read_texts(files, find_unlike(files, writes, applied))

    def _sealed_with(self, effect_id: EffectId, changes: tuple[FileChange, ...]) -> SealedSet | None:
        """Returns what was sealed; None if it is damaged, so that it does not hold these changes."""
        try:
            sealed = self._folders.read_set(effect_id)
        except (NotFound, Corrupt, OSError):
            return None
        return sealed if set(changes) <= set(sealed.change_set.changes) else None

    def _apply(
        self, effect_id: EffectId, sealed: SealedSet | None, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        if sealed is None:
            self._folders.of(effect_id).mkdir(parents=True, exist_ok=True)  # What was applied is taken back through it.
        roots = {change.root for change in changes}
        stages = {root: self._stage(effect_id, root, number) for number, root in enumerate(sorted(roots))}
        found = self._uppers(effect_id, sealed) if sealed is not None else {}
        uppers = {root: upper for root, upper in found.items() if root in roots}
        return Applier(changes, uppers, stages).apply(self._folders.of(effect_id) / UNDO_NAME)

    def _stage(self, effect_id: EffectId, root: str, number: int) -> str:
        """Returns a folder on the root's own file system, out of sight if the daemon's folder is on it too."""
        own = self._folders.of(effect_id)
        is_same = own.stat().st_dev == os.stat(root).st_dev
        return str(own / f"{STAGE_NAME}{number}") if is_same else f"{root.rstrip('/')}/{STAGE_PREFIX}{effect_id[:24]}"

    def _uppers(self, effect_id: EffectId, sealed: SealedSet) -> dict[str, str]:
        return {root: self._folders.upper_of(effect_id, sealed.roots, root) for root in sealed.roots}

    def _unpack(self, effect_id: EffectId, changes: tuple[FileChange, ...], contents: Contents) -> ChangeSet:
        """Writes the wanted content into upper folders, as if a command had left it there."""
        kept = kept_files(contents)
        roots = tuple(dict.fromkeys(change.root for change in changes))
        made, _ = self._folders.make(effect_id, roots)
        uppers = {each.root: each.upper for each in made}
        sized: list[FileChange] = []
        for change in changes:
            if change.after_sha256 is None or is_folder(change) or change.kind is ChangeKind.MODE:
                sized.append(change)
                continue
            found = kept.get((f"{change.root.rstrip('/')}/{change.path}", change.after_sha256))
            if found is None:
                self._folders.forget(effect_id)
                raise NotFound("undo_missing", f"what {change.path} held before was not kept, or was erased")
            target = Path(uppers[change.root], change.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.target is not None:
                target.symlink_to(found.target)
            else:
                target.write_bytes(found.body)
                target.chmod(change.mode & 0o777)
            sized.append(replace(change, bytes=len(found.body)))
        sealed = in_order(sized)
        git = self._git_changes(uppers, sealed, ())
        change_set = ChangeSet(changes=sealed, linked=_linked(roots, changes), git=git)
        self._folders.write_set(effect_id, SealedSet(roots=roots, change_set=change_set))
        return change_set


def _joined(found: list[ChangeSet]) -> ChangeSet:
    return ChangeSet(
        changes=in_order(change for each in found for change in each.changes),
        left_out=tuple(one for each in found for one in each.left_out),
        left_out_count=sum(each.left_out_count for each in found),
        emptied_roots=tuple(root for each in found for root in each.emptied_roots),
    )


def _whole(named: FileChange | GitWrite) -> str:
    return f"{named.root.rstrip('/')}/{named.path}"


def _one_a_folder(paths: Iterable[str]) -> tuple[str, ...]:
    """Returns a path of each folder. Links are looked for by the folders above paths, of which thousands share one."""
    return tuple({path.rstrip("/").rpartition("/")[0]: path for path in paths}.values())


def _linked(roots: tuple[str, ...], changes: tuple[FileChange, ...]) -> tuple[LinkedChange, ...]:
    whole = {_whole(each): each for each in changes}
    links = find_links(roots, _one_a_folder(whole))
    if not links:
        return ()
    found: list[LinkedChange] = []
    left_chars = NAMED_CHARS_MAX
    for path, each in whole.items():
        names = _names(path.rstrip("/"), each, links)
        left_chars -= sum(map(len, names))
        if names:
            found.append(LinkedChange(root=each.root, path=each.path, names=names if left_chars > 0 else (OBEYED,)))
    return tuple(found)


def _names(path: str, change: FileChange, links: Links) -> tuple[str, ...]:
    behind = links.names_behind(path) if change.kind is ChangeKind.LINKED else ()
    return tuple(dict.fromkeys((*links.names_of(path), *behind)))


def _listed(upper: str) -> list[str]:
    """Lists an upper folder. A command may have taken away the permissions of its root, which are nobody's change."""
    os.chmod(upper, 0o700)
    return os.listdir(upper)
