"""Events of drafts: what a command changed in its own world, the verdict on it, and the intent to apply it.

Does not own: the phases of a call (core.run.call), the outcome of a call (tool).
"""

from enum import Enum
from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, Text
from palyra.core.events.tool import FileBytes, MadeArtifact, Outcome, PolicySnapshot, ToolError, Verdict
from palyra.core.ids import CallId, EffectId
from palyra.core.trust import Trust


class ChangeKind(Enum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    LINKED = "linked"  # A symbolic link that was made or replaced.
    MODE = "mode"  # Only the permissions changed.


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One change of a workspace. `path` is relative to `root`; the path of a folder ends with a slash.

    The hashes are those of the content before and after. A symbolic link has the hash of its target. `mode` and
    `before_mode` are the permission bits. `before_bytes` is the size of a file whose content another took the place of.
    """

    root: Identifier
    path: Identifier
    kind: ChangeKind
    before_sha256: Identifier | None = None
    after_sha256: Identifier | None = None
    mode: Count = 0
    before_mode: Count = 0
    bytes: Count = 0
    before_bytes: Count = 0


class LeftOutFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that a command made and that is never applied, with the reason."""

    path: Identifier
    reason: Identifier


class ConflictCause(Enum):
    DRAFT = "draft"  # Another draft or tool call changed the same file meanwhile.
    PERSON = "person"  # Somebody outside changed it.


class FileSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files below one root that are too many to be listed. `members` tells of any file whether it may be one of them.

    `members` is packed by core.file_sets. `taint` names the sources that the writing call had seen.
    """

    root: Identifier
    files_count: Count
    members: Identifier
    taint: tuple[Identifier, ...]


class ToolDrafted(EventData, frozen=True, kw_only=True):
    """A command has ended in its draft, and its changes are sealed. Nothing of them is applied yet.

    A long list of changes is the artifact `changes_artifact_id`. `digest` is over the whole list. The other fields are
    those of the outcome that is recorded once the changes are applied or not.
    """

    TYPE: ClassVar[str] = "tool.drafted"
    call_id: CallId
    effect_id: EffectId
    exit_status: Count
    digest: Identifier
    changes_count: Count
    trust: Trust
    changes: tuple[FileChange, ...] = ()
    changes_artifact_id: Identifier | None = None
    left_out: tuple[LeftOutFile, ...] = ()
    left_out_count: Count = 0
    outcome: Outcome = Outcome.OK
    error: ToolError | None = None
    output: Text | None = None
    artifact_id: Identifier | None = None
    source: Identifier | None = None
    runtime: Identifier = "shell"
    sandbox: Identifier = "none"
    started_at_ms: Count = 0


class DraftJudged(EventData, frozen=True, kw_only=True):
    """The verdict on a sealed set of changes. `asking` lists the paths for which a person is asked.

    `writes` is what applying would leave, so that the bytes are known as tainted before they can exist. If that is too
    long a list, `write_sets` holds it instead. `held` says which of the changes are not applied but stay in the layer of
    the session, a bit for each, packed by core.drafts.review; `held_count` is their number. `full` is the whole
    difference, where the preview leaves some of it out.
    """

    TYPE: ClassVar[str] = "draft.judged"
    call_id: CallId
    digest: Identifier
    verdict: Verdict
    rule: Identifier
    reason: Text
    asking: tuple[Identifier, ...] = ()
    taint: tuple[Identifier, ...] = ()
    policy: PolicySnapshot | None = None
    preview: Text | None = None
    expires_in_ms: Count | None = None
    writes: tuple[FileBytes, ...] = ()
    write_sets: tuple[FileSet, ...] = ()
    held: Identifier | None = None
    held_count: Count = 0
    full: MadeArtifact | None = None


class DraftApplying(EventData, frozen=True, kw_only=True):
    """The durable intent to apply a draft (L1), bound to its digest. `without` lists paths that a person left out."""

    TYPE: ClassVar[str] = "draft.applying"
    call_id: CallId
    effect_id: EffectId
    digest: Identifier
    without: tuple[Identifier, ...] = ()


class DraftConflicted(EventData, frozen=True, kw_only=True):
    """A draft could not be applied because a file had changed. Nothing of it was applied; the command runs again."""

    TYPE: ClassVar[str] = "draft.conflicted"
    call_id: CallId
    effect_id: EffectId
    digest: Identifier
    cause: ConflictCause
    path: Identifier


class ChangesKeeping(EventData, frozen=True, kw_only=True):
    """A person wants what the layer of a session holds in the workspace. It is recorded before any file is touched."""

    TYPE: ClassVar[str] = "changes.keeping"
    changes: tuple[FileChange, ...]
    changes_count: Count


class ChangesKept(EventData, frozen=True, kw_only=True):
    """A person applied what the layer of a session held. `changes` lists the first of them."""

    TYPE: ClassVar[str] = "changes.kept"
    changes: tuple[FileChange, ...]
    changes_count: Count


class ChangesUndoing(EventData, frozen=True, kw_only=True):
    """A person wants files put back as they were before a run's calls. It is recorded before any file is touched."""

    TYPE: ClassVar[str] = "changes.undoing"
    calls: tuple[CallId, ...]
    changes: tuple[FileChange, ...]


class ChangesUndone(EventData, frozen=True, kw_only=True):
    """A person put files back as they were before a run's calls."""

    TYPE: ClassVar[str] = "changes.undone"
    calls: tuple[CallId, ...]
    changes: tuple[FileChange, ...]
