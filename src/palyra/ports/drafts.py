"""The ports of drafts: worlds in which commands run, and the sealed changes that come out of them.

Does not own: whether changes may be applied (engine.session.draft_gate), the overlay itself (the shell's sandbox).
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from palyra.core.drafts.changes import ChangeSet, Place
from palyra.core.drafts.git import GitText, GitWrite
from palyra.core.drafts.review import Unseen
from palyra.core.errors import Unavailable
from palyra.core.events.draft import ConflictCause, FileChange
from palyra.core.ids import EffectId, SessionId

Contents = tuple[bytes, ...]  # Archives of replaced files, the oldest first.


class OverlayRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A root of the workspace, the two folders that an overlay over it needs, and the session's layer between, if any."""

    root: str
    upper: str
    work: str
    layer: str = ""


class Review(msgspec.Struct, frozen=True):
    """What of a draft no review of the workspace shows, and what the layer of the session holds already."""

    unseen: Mapping[Place, Unseen] = {}
    layer_folders: frozenset[Place] = frozenset()
    layer_bytes: int = 0


class AppliedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A draft was applied. `undo` is the archive of what it replaced; `unkept` counts files too large for it.

    `carried_out` are the changes that were not so already.
    """

    undo: bytes | None = None
    unkept_count: int = 0
    carried_out: tuple[FileChange, ...] = ()


class DraftConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A file had changed meanwhile, so nothing was applied."""

    path: str
    cause: ConflictCause


class DraftFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The machine refused, so nothing was applied: no space, no permission."""

    message: str


class DraftWorlds(Protocol):
    """What a runtime needs to run a command in a draft."""

    async def begin(
        self, effect_id: EffectId, roots: tuple[str, ...], *, is_alone: bool, session_id: str = ""
    ) -> tuple[OverlayRoot, ...]:
        """Makes an empty world, in which the layer of the session shows.

        With `is_alone` nothing else is applied to these roots until the draft is settled.
        """
        ...

    async def seal(self, effect_id: EffectId) -> ChangeSet:
        """Reads what the command changed, and makes it durable. The command must have ended."""
        ...

    async def drop(self, effect_id: EffectId) -> None:
        """Removes a draft of which nothing is needed, without waiting for the disk. An absent one is no error."""
        ...


class PreviewRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a difference is shown. A file that is longer is named with its size."""

    length_max: int
    files_max: int
    file_bytes_max: int


CARD_ROOM = PreviewRoom(length_max=12 * 1024, files_max=60, file_bytes_max=64 * 1024)
FULL_ROOM = PreviewRoom(length_max=8 * 1024 * 1024, files_max=200_000, file_bytes_max=2 * 1024 * 1024)


class ShownChanges(msgspec.Struct, frozen=True):
    """`is_whole` says that nothing that these changes write is left out."""

    text: str
    is_whole: bool


class Drafts(Protocol):
    """What is done with sealed drafts. Every method may be called again after a crash."""

    async def read(self, effect_id: EffectId) -> ChangeSet: ...

    async def preview(
        self, effect_id: EffectId, changes: tuple[FileChange, ...], room: PreviewRoom = CARD_ROOM
    ) -> ShownChanges:
        """Returns the difference that applying these changes would make, for a person."""
        ...

    async def read_git(self, effect_id: EffectId, writes: tuple[GitWrite, ...]) -> tuple[GitText, ...]:
        """Returns each write with its content, as far as a card could show it."""
        ...

    async def look_into_git(
        self, effect_id: EffectId, writes: tuple[GitWrite, ...], applied: frozenset[tuple[str, str]]
    ) -> tuple[GitText, ...]:
        """Returns those that are neither a file of the working tree nor known to the repository, with their content.

        A file counts as the draft leaves it only if it is among those `applied`, by root and path. Others stay as they are.
        """
        ...

    async def preview_git(self, texts: tuple[GitText, ...], room: PreviewRoom = CARD_ROOM) -> ShownChanges:
        """Returns the difference from the files to what git would write in their place, for a person."""
        ...

    async def apply(
        self, effect_id: EffectId, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        """Applies all of the changes or none. What is already applied is done."""
        ...

    async def review(self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]) -> Review:
        """Looks at the content of a draft as a person would."""
        ...

    async def layer(
        self, effect_id: EffectId, session_id: str, held: tuple[FileChange, ...], applied: tuple[FileChange, ...]
    ) -> None:
        """Puts what is held back into the layer of the session, and takes out of it what was applied."""
        ...

    async def kept(self, session_id: str) -> ChangeSet:
        """Returns what the layer of the session would change in the workspace."""
        ...

    async def take_kept(
        self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        """Applies changes of the layer to the workspace, and takes them out of the layer."""
        ...

    async def preview_kept(self, session_id: str, changes: tuple[FileChange, ...]) -> str:
        """Returns the difference that applying these changes of the layer would make, for a person."""
        ...

    async def forget_layers(self, session_id: str) -> None: ...

    async def layered_sessions(self) -> tuple[SessionId, ...]:
        """Returns the sessions that have a layer."""
        ...

    async def archive(self, effect_id: EffectId) -> bytes | None:
        """Returns the content of a draft that could not be applied, or None if it is too large to be kept."""
        ...

    async def unpack(self, effect_id: EffectId, changes: tuple[FileChange, ...], contents: Contents) -> ChangeSet:
        """Makes a sealed draft from archives, to put files back, and returns it with their sizes. Raises NotFound if one
        of them is in no archive."""
        ...

    async def compare(self, changes: tuple[FileChange, ...], contents: Contents) -> str:
        """Returns the difference between what archives hold of these files and what lies there now."""
        ...

    async def release(self, effect_id: EffectId) -> None:
        """Lets others go on that wait for a draft which has the roots alone."""
        ...

    async def forget(self, effect_id: EffectId) -> None: ...


class NoDrafts:
    """Stands where nothing is drafted."""

    async def read(self, effect_id: EffectId) -> ChangeSet:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def preview(
        self, effect_id: EffectId, changes: tuple[FileChange, ...], room: PreviewRoom = CARD_ROOM
    ) -> ShownChanges:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def read_git(self, effect_id: EffectId, writes: tuple[GitWrite, ...]) -> tuple[GitText, ...]:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def look_into_git(
        self, effect_id: EffectId, writes: tuple[GitWrite, ...], applied: frozenset[tuple[str, str]]
    ) -> tuple[GitText, ...]:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def preview_git(self, texts: tuple[GitText, ...], room: PreviewRoom = CARD_ROOM) -> ShownChanges:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def apply(
        self, effect_id: EffectId, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        return DraftFailure(message="this daemon keeps no drafts")

    async def review(self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]) -> Review:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def layer(
        self, effect_id: EffectId, session_id: str, held: tuple[FileChange, ...], applied: tuple[FileChange, ...]
    ) -> None:
        return

    async def kept(self, session_id: str) -> ChangeSet:
        return ChangeSet()

    async def take_kept(
        self, effect_id: EffectId, session_id: str, changes: tuple[FileChange, ...]
    ) -> AppliedDraft | DraftConflict | DraftFailure:
        return DraftFailure(message="this daemon keeps no drafts")

    async def preview_kept(self, session_id: str, changes: tuple[FileChange, ...]) -> str:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def forget_layers(self, session_id: str) -> None:
        return

    async def layered_sessions(self) -> tuple[SessionId, ...]:
        return ()

    async def archive(self, effect_id: EffectId) -> bytes | None:
        return None

    async def unpack(self, effect_id: EffectId, changes: tuple[FileChange, ...], contents: Contents) -> ChangeSet:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def compare(self, changes: tuple[FileChange, ...], contents: Contents) -> str:
        raise Unavailable("drafts_missing", "this daemon keeps no drafts")

    async def release(self, effect_id: EffectId) -> None:
        return

    async def forget(self, effect_id: EffectId) -> None:
        return
