"""Taint: how sources below `local` are named, and the fold of those that a session's context holds (L8).

Does not own: judging by taint (policy).
A source is a short label that the daemon gives (`http:host`, `mcp:server`, `wasm:plugin`, `file:path`, `tool:name`,
`channel:name`, `client:token`, `skill:name`), never content.
Invariants: the set grows with every source that is met. It shrinks only by a reset of the session or a person's
`source.trusted`. It is bounded, and sources that no longer fit become `many`, for which nobody can vouch.
A model's words have no source of their own: they have those of the model's context, which are in the set already. So a
delegated session begins with its parent's sources, and the task that a model wrote for it adds none.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Corrupt
from palyra.core.events import DATA_TYPES, Draft, Event
from palyra.core.events.base import ErasedData
from palyra.core.events.model import ContextAssembled, DocumentRead, MemoryRecalled, ReferenceResolved
from palyra.core.events.run import MessageGiven, MessageUser, RunAccepted
from palyra.core.events.session import (
    SessionBranched,
    SessionCreated,
    SessionReset,
    SessionRestored,
    SourceDistrusted,
    SourceTrusted,
    TaintSource,
)
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import Principal, is_agent
from palyra.core.tools import CallNature, Runtime, ToolSpec
from palyra.core.trust import Trust, is_tainting

SOURCES_MAX = 64  # More than a person would look through. It keeps a session's row at some kilobytes.
LABEL_LENGTH_MAX = 160
MANY = "many"
CLIENT = "client"  # The kind of source that is a program which speaks with a token.
UNNAMED = "external"  # Stands for content below `local` whose source nobody recorded, or whose record was erased.

# These types bring content in. Every other type is the daemon's words, or a model's from its context.
MEETING_TYPES = frozenset(
    {
        ToolFinished.TYPE,
        RunAccepted.TYPE,
        MessageUser.TYPE,
        MessageGiven.TYPE,
        ReferenceResolved.TYPE,
        DocumentRead.TYPE,
        MemoryRecalled.TYPE,
        ContextAssembled.TYPE,
    }
)
ACT_TYPES = frozenset(
    {
        SessionCreated.TYPE,
        SessionReset.TYPE,
        SessionBranched.TYPE,
        SessionRestored.TYPE,
        SourceTrusted.TYPE,
        SourceDistrusted.TYPE,
    }
)

_FOLDED = frozenset(DATA_TYPES[name] for name in MEETING_TYPES | ACT_TYPES) | {ErasedData}

Taint = tuple[TaintSource, ...]

_OF_MEMORY = ("memory:recall",)  # Stands for items whose own sources nobody recorded.
_UNFIT = frozenset("<>[]~")  # Characters of fences and notes, and the sign of a shortened label.
_READABLE = re.compile(r"[a-z]{1,32}:[^<>\[\]]+|many|external")
_decoder = msgspec.json.Decoder(Taint)


def label(kind: str, name: str) -> str:
    """Makes one line of bounded length. A name that does not fit keeps its hash, so two names never share a label."""
    fitting = "".join(letter if letter.isprintable() and letter not in _UNFIT else "_" for letter in name)
    room = LABEL_LENGTH_MAX - len(kind) - 1
    if fitting == name and 0 < len(name) <= room:
        return f"{kind}:{name}"
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{kind}:{fitting[: room - len(mark) - 1]}~{mark}"


def read_label(text: str) -> str:
    """Returns a label that somebody wrote down as the daemon would have given it, whatever the text is."""
    is_fit = _READABLE.fullmatch(text) is not None and len(text) <= LABEL_LENGTH_MAX and text.isprintable()
    return text if is_fit else label(UNNAMED, text)


def source_of(spec: ToolSpec, nature: CallNature | None) -> str:
    """Returns where the output of one call comes from, by what the daemon knows of its tool."""
    _, _, rest = spec.name.partition(".")
    owner = rest.partition(".")[0]
    if spec.runtime is Runtime.MCP and owner:
        return label("mcp", owner)
    if spec.runtime is Runtime.WASM and owner:
        return label("wasm", owner)
    if nature is not None and nature.host:
        return label("http", nature.host.lower())
    return label("tool", spec.name)


def own_source(spec: ToolSpec) -> str | None:
    """Returns the source that is the tool itself: what a server said is no news to that server."""
    parts = spec.name.split(".", 2)
    return label("mcp", parts[1]) if spec.runtime is Runtime.MCP and len(parts) == 3 else None


def taint_elsewhere(spec: ToolSpec, taint: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the taint by which a call of this tool is judged: a server's own answers do not count against it."""
    own = own_source(spec)
    return taint if own is None or own not in taint else tuple(source for source in taint if source != own)


def labels(taint: Taint) -> tuple[str, ...]:
    """Returns the sources that nobody vouches for, in a fixed order. A call is judged with these."""
    return tuple(sorted(each.source for each in taint if not each.is_trusted))


def trust_of_taint(taint: Taint) -> Trust:
    return Trust.EXTERNAL if any(not each.is_trusted for each in taint) else Trust.SYSTEM


def find_source(taint: Taint, source: str) -> TaintSource | None:
    return next((each for each in taint if each.source == source), None)


def fold_drafts(taint: Taint, drafts: Iterable[Draft], after_seq: int) -> Taint:
    for seq, draft in enumerate(drafts, start=after_seq + 1):
        taint = fold_taint(taint, draft, seq)
    return taint


def fold_taint(taint: Taint, said: Draft | Event, seq: int) -> Taint:
    """Returns the taint after one more event of the session's tape."""
    if type(said.data) not in _FOLDED:
        return taint
    match said.data:
        case SessionReset():
            return ()
        case SessionBranched(taint=inherited) | SessionRestored(taint=inherited) | SessionCreated(taint=inherited):
            return tuple(replace(each, since_seq=seq) for each in inherited)
        case SourceTrusted(source=source):
            return _mark(taint, source, is_trusted=True)
        case SourceDistrusted(source=source):
            return _mark(taint, source, is_trusted=False)
        case ErasedData():
            return _fold_erased(taint, said, seq)
        case ContextAssembled(tool_sources=sources):
            for source in sources:
                taint = _add(taint, TaintSource(source=source, since_seq=seq))
            return taint
        case MessageUser() as message if is_tainting(said.trust):
            return _fold_message(taint, message, said, seq)
        case _:
            for met in _met(said, seq):
                taint = _add(taint, met)
            return taint


def touches_taint(event: Event) -> bool:
    """Tells whether folding this event could change the taint of its session."""
    if event.type in MEETING_TYPES:
        return isinstance(event.data, ErasedData | MemoryRecalled | ReferenceResolved | DocumentRead) or is_tainting(
            event.trust
        )
    if event.type == SessionCreated.TYPE:
        return isinstance(event.data, SessionCreated) and bool(event.data.taint)
    return event.type in ACT_TYPES


def encode_taint(taint: Taint) -> str:
    return msgspec.json.encode(taint).decode()


def decode_taint(text: str) -> Taint:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as cause:
        raise Corrupt("row_unreadable", "a taints row is damaged; rebuild the projections") from cause


def _met(said: Draft | Event, seq: int) -> tuple[TaintSource, ...]:
    """Returns the sources that this event brought in."""
    match said.data:
        case MemoryRecalled(items=items) if any(is_tainting(item.trust) for item in items):
            named = (name for item in items if is_tainting(item.trust) for name in item.sources or _OF_MEMORY)
            return tuple(TaintSource(source=name, since_seq=seq) for name in named)
        case ReferenceResolved(trust=trust, kind=kind, source=source, sources=sources) if is_tainting(trust):
            named_of = sources or (source or label("reference", kind),)
            return tuple(TaintSource(source=name, since_seq=seq) for name in named_of)
        case DocumentRead(trust=trust, path=path, source=source) if is_tainting(trust):
            return (TaintSource(source=source or label("file", path), since_seq=seq),)
        case ToolFinished() as finished if is_tainting(said.trust):
            call_id, tool = finished.call_id, finished.tool
            named_of = finished.sources or (finished.source or UNNAMED,)
            return tuple(TaintSource(source=name, since_seq=seq, call_id=call_id, tool=tool) for name in named_of)
        case RunAccepted(origin=origin, client=client, lineage=()) if is_tainting(said.trust):
            return (TaintSource(source=client or label("channel", origin), since_seq=seq),)
        case MessageGiven(source=source) if is_tainting(said.trust):
            return (TaintSource(source=source or UNNAMED, since_seq=seq),)
        case MemoryRecalled() | ReferenceResolved() | DocumentRead() if is_tainting(said.trust):
            return (TaintSource(source=UNNAMED, since_seq=seq),)
        case _:
            return ()


def _fold_message(taint: Taint, message: MessageUser, said: Draft | Event, seq: int) -> Taint:
    """Adds the sources of what is attached, and the speaker, unless the attachments alone lowered the trust.

    A task that an agent delegated brings no source of its own: its session inherited the agent's.
    """
    sources = [each.source for each in message.attachments if each.source is not None]
    is_speakers = not sources or is_tainting(message.sender_trust or said.trust)
    if is_speakers and not is_agent(said.actor):
        sources.append(message.client or speaker_source(said.actor))
    for source in sources:
        taint = _add(taint, TaintSource(source=source, since_seq=seq))
    return taint


def speaker_source(actor: Principal) -> str:
    """`channel:discord:1234` speaks through the channel discord; any other principal is a source by itself."""
    kind, _, name = actor.partition(":")
    return label("channel", name.partition(":")[0]) if kind == "channel" else label("channel", actor)


def _add(taint: Taint, met: TaintSource) -> Taint:
    if find_source(taint, met.source) is not None:
        return taint
    if len(taint) < SOURCES_MAX:
        return (*taint, met)
    return taint if find_source(taint, MANY) is not None else (*taint, replace(met, source=MANY))


def _mark(taint: Taint, source: str, *, is_trusted: bool) -> Taint:
    if source == MANY:
        return taint
    return tuple(replace(each, is_trusted=is_trusted) if each.source == source else each for each in taint)


def _fold_erased(taint: Taint, said: Draft | Event, seq: int) -> Taint:
    """Erasing text makes nothing more trusted: the header still says what came in, and a doubt remains."""
    type_name = said.type if isinstance(said, Event) else ""
    if type_name == SessionReset.TYPE:
        return ()
    if type_name == SourceDistrusted.TYPE:
        return tuple(replace(each, is_trusted=False) for each in taint)
    # The header of a memory.recalled has the trust of its item, so that forgetting a trusted one leaves no doubt.
    is_told_by_data = type_name in (ReferenceResolved.TYPE, DocumentRead.TYPE)
    if is_told_by_data or (type_name in MEETING_TYPES and is_tainting(said.trust)):
        return _add(taint, TaintSource(source=UNNAMED, since_seq=seq))
    return taint
