"""Events of a session's own life: creation, branching, labels, resets, checkpoints, trusted sources and pins.

Does not own: runs (run).
"""

from enum import Enum
from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, Text
from palyra.core.events.tool import FileBytes
from palyra.core.ids import CallId, CandidateId, Principal, SessionId
from palyra.core.trust import Trust


class Parent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a branch leaves its parent. The hash binds the branch to the history it claims."""

    session_id: SessionId
    seq: Count
    hash: Identifier


class TaintSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A source below `local` in a session's context: since when, and by which call it came. See core.taint."""

    source: Identifier
    since_seq: Count
    call_id: CallId | None = None
    tool: Identifier | None = None
    is_trusted: bool = False


class SessionCreated(EventData, frozen=True, kw_only=True):
    """`purpose` is set on the tape of a service run and of a delegated one; `serves` names the session it is for.

    `taint` is what the context of a delegating session held (core.service_runs, core.delegation).
    """

    TYPE: ClassVar[str] = "session.created"
    owner: Principal
    agent: Identifier
    key: Identifier | None = None
    label: Text | None = None
    purpose: Identifier | None = None
    serves: SessionId | None = None
    taint: tuple[TaintSource, ...] = ()


class SessionBranched(EventData, frozen=True, kw_only=True):
    """The first event of a branch. Its earlier history and taint are the parent's, up to `parent.seq`."""

    TYPE: ClassVar[str] = "session.branched"
    owner: Principal
    agent: Identifier
    parent: Parent
    key: Identifier | None = None
    label: Text | None = None
    taint: tuple[TaintSource, ...] = ()


class SessionRestored(EventData, frozen=True, kw_only=True):
    """The first event of a session that brings an earlier checkpoint back."""

    TYPE: ClassVar[str] = "session.restored"
    owner: Principal
    agent: Identifier
    parent: Parent
    checkpoint_id: Identifier
    label: Text | None = None
    taint: tuple[TaintSource, ...] = ()


class SessionReset(EventData, frozen=True, kw_only=True):
    """History before this event is no longer context. Grants of scope session and taint end here."""

    TYPE: ClassVar[str] = "session.reset"
    reason: Text = ""


class SourceTrusted(EventData, frozen=True, kw_only=True):
    """A person vouches for a source of this session's taint, until the session is reset."""

    TYPE: ClassVar[str] = "source.trusted"
    source: Identifier
    reason: Text = ""


class SourceDistrusted(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "source.distrusted"
    source: Identifier
    reason: Text = ""


class SessionLabelled(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "session.labelled"
    label: Text | None


class LearningApplied(EventData, frozen=True, kw_only=True):
    """Something that a person said was learned without asking. Its session is told at once, so that they can undo it."""

    TYPE: ClassVar[str] = "learning.applied"
    candidate_id: CandidateId
    kind: Identifier
    content: Text


class KeptSentence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence that a compaction kept word for word. `place` is where it was said.

    `is_told` says that the summary holds what matters of it, so that it is not shown by itself.
    """

    kind: Identifier
    text: Text
    place: Count
    trust: Trust
    is_told: bool = False


class RetiredSentence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that no longer holds or a task that is done. `by` are the words at `by_place` that say so."""

    kind: Identifier
    text: Text
    place: Count
    by: Text
    by_place: Count


class SessionCompacted(EventData, frozen=True, kw_only=True):
    """Messages up to `to_place` are no longer sent; `items` and `summary` are sent in their place.

    Places count the events of the whole conversation, a branch's parents included. `from_seq` and `to_seq` are the same
    on the session's own tape, 0 where they lie on a parent's. The event's trust is the lowest of what was compacted.
    `by` is `model` or `rules`, and `refusals` says why a model's summary was not used. `checkpoint_id` names the state
    before it. `retired` are the rules and tasks that it no longer keeps. `artifact_id` is the whole record: also what was
    dropped, and every probe.
    """

    TYPE: ClassVar[str] = "session.compacted"
    checkpoint_id: Identifier
    from_seq: Count
    to_seq: Count
    summary: Text
    strategy: Identifier = "session_window_v1"
    tokens_before: Count = 0
    tokens_after: Count = 0
    probes_passed: Count = 0
    from_place: Count = 0
    to_place: Count = 0
    items: tuple[KeptSentence, ...] = ()
    by: Identifier = "rules"
    refusals: tuple[Text, ...] = ()
    fence_id: Identifier = ""
    cause: Identifier = "size"
    artifact_id: Identifier | None = None
    retired: tuple[RetiredSentence, ...] = ()


class SessionCheckpointed(EventData, frozen=True, kw_only=True):
    """Names the state of the session at `at_seq`, so that it can be restored. `reason` is `manual` or `compaction`."""

    TYPE: ClassVar[str] = "session.checkpointed"
    checkpoint_id: Identifier
    at_seq: Count
    label: Text | None = None
    reason: Identifier = "manual"


class ChangePhase(Enum):
    """How far a change of a document got. Without a later event, the hashes tell whether the file was written."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"  # The file changed meanwhile, and was not written.


class DocumentChanged(EventData, frozen=True, kw_only=True):
    """A managed block of a workspace document changes (core.managed_blocks).

    `written` is the whole file afterwards, with the sources of what it holds. `artifact_id` is the file before.
    """

    TYPE: ClassVar[str] = "document.changed"
    phase: ChangePhase
    block: Identifier
    revision: Count
    written: FileBytes
    before_sha256: Identifier | None = None
    artifact_id: Identifier | None = None


class PinAdded(EventData, frozen=True, kw_only=True):
    """Words that stay in the context until the pin is removed. `source_seq` is the event they were taken from.

    That event lies after the last reset, so the taint of the session holds its sources already.
    """

    TYPE: ClassVar[str] = "pin.added"
    pin_id: Identifier
    text: Text
    source_seq: Count | None = None


class PinRemoved(EventData, frozen=True, kw_only=True):
    """Ends a pin of this session or one that a branch inherited. A reset removes every pin before it."""

    TYPE: ClassVar[str] = "pin.removed"
    pin_id: Identifier
