"""The tool artifact.read: returns a page of an artifact's text.

Does not own: storing artifacts, nor who owns them (ports).
Offsets count bytes, as the artifact is stored. An offset inside of a character means the next one. A page ends with a
line if it can, else between words, and never inside of a character or of a secret's marker. It is small enough to come
back whole. The text keeps its trust and its source, in whichever session it is read (L8).
"""

from palyra.core.argument_schemas import arguments_schema, integer_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.ids import ArtifactId
from palyra.core.previews import cut_after
from palyra.core.taint import label
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, CallNature, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust, is_tainting
from palyra.core.writes import LinkArtifact
from palyra.ports.artifacts import Artifacts
from palyra.ports.results import NoPastResults, PastResults
from palyra.ports.state import State
from palyra.ports.tools import ToolCallContext

PAGE_BYTES_MAX = OUTPUT_INLINE_BYTES_MAX - 512  # The rest is for the line that says how to read on.
BINARY_LOOK_BYTES = 8 * 1024  # A NUL byte within these bytes shows that a body is no text, as in fs.read.
OFFSET_MAX = 64 * 1024 * 1024  # An artifact has at most so many bytes.
PAGE_BYTES_MIN = 64  # A marker is shorter, so every page moves on.
_CHARACTER_BYTES_MAX = 4
_TEXT_LENGTH_SHOWN_MAX = 64

SPEC = ToolSpec(
    name="artifact.read",
    description=(
        "Reads a text artifact of yours: a long result that was kept, an upload or an attachment. Returns one page; when "
        "there is more, the last line in brackets says with which offset to read on."
    ),
    input_schema=arguments_schema(
        {
            "id": {
                "type": "string",
                "pattern": "^([0-9a-f]{64}|c[0-9]{1,6}_[0-9A-Z]{8})$",
                "description": "The id as a result or a message names it: 64 characters of hexadecimal, or a call's id.",
            },
            "offset": integer_schema(0, OFFSET_MAX, "The first byte to return; bytes are counted from 0. Default 0."),
            "limit": integer_schema(
                PAGE_BYTES_MIN, PAGE_BYTES_MAX, f"How many bytes to return at most. Default {PAGE_BYTES_MAX}."
            ),
        },
        ["id"],
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.EXTERNAL,
    timeout_s=20.0,
    traits=frozenset({Trait.PAGES_RESULTS}),
)


class ArtifactRead:
    """`results` reads results of earlier calls again, which a prompt shows shortened."""

    spec = SPEC

    def __init__(self, artifacts: Artifacts, state: State, results: PastResults | None = None) -> None:
        self._artifacts = artifacts
        self._state = state
        self._results = results or NoPastResults()

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        artifact_id = arguments.get("id")
        offset, limit = arguments.get("offset", 0), arguments.get("limit", PAGE_BYTES_MAX)
        if not isinstance(artifact_id, str) or not isinstance(offset, int) or not isinstance(limit, int):
            return _ours(failed("arguments_invalid", "id is a text, offset and limit are whole numbers"))
        if offset < 0 or limit < PAGE_BYTES_MIN:
            return _ours(failed("arguments_invalid", f"offset is at least 0 and limit at least {PAGE_BYTES_MIN}"))
        if "_" in artifact_id:
            return await self._read_result(artifact_id, context, offset, min(limit, PAGE_BYTES_MAX))
        try:
            link = await self._state.artifact_for(ArtifactId(artifact_id), context.principal)
            if link is None:
                return _ours(failed("artifact_unknown", f"there is no artifact {artifact_id[:_TEXT_LENGTH_SHOWN_MAX]}"))
            return await self._read(link, offset, min(limit, PAGE_BYTES_MAX))
        except PalyraError as refused:
            return _ours(failed(refused.code, refused.message))

    async def _read_result(self, call_id: str, context: ToolCallContext, offset: int, limit: int) -> ToolResult:
        """Reads a result of this session again. It brings back the trust and the source that it came with (L8)."""
        try:
            found = await self._results.find(context.session_id, call_id)
        except PalyraError as refused:
            return _ours(failed(refused.code, refused.message))
        body = found.text.encode() if found is not None else b""
        if found is None or offset > len(body):
            return _ours(failed("artifact_unknown", f"this session has no result {call_id[:32]} from that offset on"))
        page = body[offset : offset + limit + PAGE_BYTES_MIN]
        skipped = _continuing(page) if offset else 0
        text = _page(page[skipped:].decode("utf-8", "ignore"), offset + skipped, limit, len(body))
        return ToolResult(
            outcome=Outcome.OK,
            output=text,
            trust=found.trust,
            source=(found.source or label("result", call_id)) if is_tainting(found.trust) else None,
        )

    async def _read(self, link: LinkArtifact, offset: int, limit: int) -> ToolResult:
        if offset >= link.bytes > 0:
            return _ours(
                failed("offset_past_end", f"the artifact has {link.bytes} bytes; offset {offset} is beyond them")
            )
        beginning = await self._artifacts.get(link.artifact_id, 0, BINARY_LOOK_BYTES)
        # A little more than the page tells whether it ends inside of a character or a marker.
        body = await self._artifacts.get(link.artifact_id, offset, limit + PAGE_BYTES_MIN)
        skipped = _continuing(body) if offset else 0
        try:
            is_text = b"\x00" not in beginning
            ahead = _decoded(body[skipped:]) if is_text else ""
        except UnicodeDecodeError:
            is_text, ahead = False, ""
        if not is_text:
            return _of(link, f"[{link.media_type}, {link.bytes} bytes: this is no UTF-8 text, so it is not shown.]")
        if not link.bytes:
            return _of(link, "[The artifact is empty.]")
        return _of(link, _page(ahead, offset + skipped, limit, link.bytes))


def _continuing(body: bytes) -> int:
    """Counts the bytes at the beginning that belong to a character that began before."""
    count = 0
    while count < min(_CHARACTER_BYTES_MAX - 1, len(body)) and body[count] & 0xC0 == 0x80:
        count += 1
    return count


def _decoded(body: bytes) -> str:
    """Decodes the body without a partial character at the end. Any other invalid UTF-8 raises."""
    try:
        return body.decode()
    except UnicodeDecodeError as cause:
        if cause.end == len(body) and len(body) - cause.start < _CHARACTER_BYTES_MAX:
            return body[: cause.start].decode()
        raise


def _page(ahead: str, start: int, limit: int, whole_bytes: int) -> str:
    fitting = cut_after(ahead, limit)
    end = start + len(fitting.encode())
    if end >= whole_bytes:
        return fitting if start == 0 else f"{fitting}\n[Bytes {start} to {end} of {whole_bytes}: the end.]"
    page = _at_break(fitting)
    end = start + len(page.encode())
    return f"{page}\n[Bytes {start} to {end} of {whole_bytes}; read on with offset {end}.]"


def _at_break(text: str) -> str:
    """Cuts the text at the last line end, or the last blank, if more than half is left."""
    for mark in ("\n", " "):
        at = text.rfind(mark) + 1
        if at > len(text) // 2:
            return text[:at]
    return text


def _of(link: LinkArtifact, output: str) -> ToolResult:
    source = link.source or label("artifact", link.artifact_id[:16])
    is_tainted = is_tainting(link.trust)
    return ToolResult(outcome=Outcome.OK, output=output, trust=link.trust, source=source if is_tainted else None)


def _ours(refusal: ToolResult) -> ToolResult:
    """Marks a refusal as our own words, which bring nothing in from outside."""
    return ToolResult(outcome=refusal.outcome, error=refusal.error, trust=Trust.SYSTEM)
