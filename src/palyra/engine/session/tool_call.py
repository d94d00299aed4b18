"""One tool execution.

Owns: the real arguments, the time limit, the origin of its output, spilling large output, the attestation.
Does not own: whether it may run (gate).
Secrets become real again only here, and only for the tool of a judged call whose intent is on the tape (L5). Its result
is redacted before anything else sees it.
The files it read are looked up: bytes written under taint bring that taint back. The files it wrote are recorded with
the taint that the call was judged with (L8).
"""

import asyncio
import secrets
from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.attestation import hash_input, hash_output, sign_bytes
from palyra.core.checkpoint import key_id
from palyra.core.events import Draft
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    Attestation,
    EffectClass,
    FileBytes,
    MadeArtifact,
    Outcome,
    ToolError,
    ToolFinished,
    ToolUncertain,
)
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import ArtifactId
from palyra.core.previews import preview_spilled
from palyra.core.projections.provenance import full_path
from palyra.core.redaction import Redactor
from palyra.core.run.call import Call
from palyra.core.taint import label, source_of
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, CallNature, Capability, Runtime, ToolResult, failed
from palyra.core.trust import Trust, is_tainting
from palyra.core.writes import LinkArtifact, SealSecret, Write
from palyra.engine.hub import Hub, LiveFrame
from palyra.engine.session.call_nature import read_nature
from palyra.engine.session.drafts import agent_draft
from palyra.engine.session.real_arguments import ArgumentRestorer
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.sealer import Sealer
from palyra.ports.signer import Signer
from palyra.ports.tools import Tool, ToolCallContext
from palyra.ports.views import ProvenanceViews


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutor:
    """What tool executions need."""

    restorer: ArgumentRestorer
    provenance: ProvenanceViews
    artifacts: Artifacts
    redactor: Redactor
    sealer: Sealer
    signer: Signer
    clock: Clock
    hub: Hub


class ToolRun:
    """Runs in its own task. To stop it, cancel that task and then ask for `cancelled`."""

    def __init__(self, executor: ToolExecutor, tool: Tool, call: Call, context: ToolCallContext) -> None:
        self._executor = executor
        self._tool = tool
        self._call = call
        self._context = context
        self._started_at_ms = context.now_ms
        self._arguments: JsonObject = {}
        self._read_taint: tuple[str, ...] = ()

    async def perform(self) -> tuple[Draft, tuple[Write, ...]]:
        sealed = self._call.arguments if isinstance(self._call.arguments, dict) else {}
        self._arguments = (await self._executor.restorer.restore(self._context.run_id, sealed)).arguments
        try:
            async with asyncio.timeout(self._tool.spec.timeout_s):
                result = await self._tool.execute(self._arguments, self._context)
        except TimeoutError:
            limit_s = self._tool.spec.timeout_s
            error = ToolError(code="timeout", message=f"{self._call.tool} did not finish within {limit_s:g} s.")
            # A program in a sandbox ended with it; a request to somebody else may still take effect.
            is_unknown = self._tool.spec.runtime is not Runtime.SHELL
            result = ToolResult(outcome=Outcome.TIMEOUT, error=error, is_unknown=is_unknown)
        if result.is_unknown and self._is_once:
            return self._doubted(), ()
        return await self._finished(await self._traced(result))

    @property
    def _is_once(self) -> bool:
        return self._call.judged is not None and self._call.judged.effect_class is EffectClass.ONCE

    def _doubted(self) -> Draft:
        """A call that may have taken effect is not reported as failed, and not repeated in silence (L2)."""
        doubt = ToolUncertain(call_id=self._call.call_id, effect_id=self._call.effect_id)
        now_ms = self._executor.clock.now_ms()
        return agent_draft(doubt, self._context.run_id, self._context.agent, Trust.SYSTEM, now_ms)

    def cancelled(self) -> tuple[Draft, tuple[Write, ...]]:
        error = ToolError(code="cancelled", message="The run was ended while this call ran.")
        return self._report(ToolResult(outcome=Outcome.CANCELLED, error=error), None), ()

    def stuck(self) -> tuple[Draft, tuple[Write, ...]]:
        """Reports a call that was given up although its run goes on. A `once` call may have taken effect (L2)."""
        if self._is_once:
            return self._doubted(), ()
        error = ToolError(code="stuck", message=f"{self._call.tool} gave no sign for too long and was stopped.")
        return self._report(ToolResult(outcome=Outcome.TIMEOUT, error=error), None), ()

    def broken(self) -> tuple[Draft, tuple[Write, ...]]:
        """Reports an unexpected failure of the tool itself; the daemon's log has the details."""
        if self._is_once:
            return self._doubted(), ()
        told = failed("tool_broken", f"{self._call.tool} failed unexpectedly; see the daemon's log.")
        return self._report(replace(told, trust=Trust.SYSTEM), None), ()

    async def _traced(self, result: ToolResult) -> ToolResult:
        """Adds the trust of the bytes and names that were read.

        For several tainted files the source is the tool itself.
        """
        provenance = self._executor.provenance
        tainted = {
            file.path for file in result.read if await provenance.tainted_file(full_path(file), file.sha256) is not None
        }
        rows = await provenance.tainted_paths(result.named)
        tainted |= {row.path.removeprefix(f"{row.root.rstrip('/')}/") for row in rows}
        if not tainted:
            return result
        source = label("file", tainted.pop()) if len(tainted) == 1 else label("tool", self._tool.spec.name)
        self._read_taint = (source,)
        return replace(result, trust=Trust.EXTERNAL, source=source)

    async def _finished(self, result: ToolResult) -> tuple[Draft, tuple[Write, ...]]:
        made, links = await self._keep_made(result)
        redacted = self._executor.redactor.text(_with_artifacts(result.output, made))
        run_id = self._context.run_id
        writes: list[Write] = [
            SealSecret(run_id, secret.id, self._executor.sealer.seal(secret.value.encode(), run_id.encode()))
            for secret in redacted.secrets
        ]
        writes.extend(links)
        body = redacted.text.encode("utf-8", "replace")
        if len(body) <= OUTPUT_INLINE_BYTES_MAX:
            return self._report(replace(result, output=body.decode()), None, made), tuple(writes)
        artifact_id = await self._executor.artifacts.put(body)
        writes.append(self._link(result, artifact_id, len(body), "text/plain"))
        shown = preview_spilled(body.decode(), artifact_id)
        return self._report(replace(result, output=shown), artifact_id, made), tuple(writes)

    def _link(self, result: ToolResult, artifact_id: ArtifactId, size_bytes: int, media_type: str) -> LinkArtifact:
        """Links an artifact with the origin of its body, so that reading it later brings the taint back (L8)."""
        trust, now_ms = self._trust(result), self._executor.clock.now_ms()
        source = self._source(result) if is_tainting(trust) else None
        return LinkArtifact(artifact_id, self._context.session_id, size_bytes, media_type, now_ms, trust, source)

    async def _keep_made(self, result: ToolResult) -> tuple[tuple[MadeArtifact, ...], list[Write]]:
        """Stores the bodies that a call made, each as an artifact of the session.

        They are bytes, so nothing is redacted.
        """
        made: list[MadeArtifact] = []
        links: list[Write] = []
        for body in result.made:
            artifact_id = await self._executor.artifacts.put(body.body)
            size = len(body.body)
            links.append(self._link(result, artifact_id, size, body.media_type))
            made.append(MadeArtifact(artifact_id=artifact_id, name=body.name, media_type=body.media_type, bytes=size))
        return tuple(made), links

    def _report(self, result: ToolResult, artifact_id: ArtifactId | None, made: tuple[MadeArtifact, ...] = ()) -> Draft:
        trust = self._trust(result)
        is_tainted = is_tainting(trust)
        finished = ToolFinished(
            call_id=self._call.call_id,
            effect_id=self._call.effect_id,
            outcome=result.outcome,
            error=result.error,
            attestation=None,
            output=result.output,
            artifact_id=artifact_id,
            # The fence is drawn after the content exists, so that no content can hold it.
            fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2) if is_tainted else None,
            source=self._source(result) if is_tainted else None,
            tool=self._call.tool if is_tainted else None,
            written=self._written(result),
            made=made,
            skill=result.skill,
        )
        now_ms = self._executor.clock.now_ms()
        attested = replace(finished, attestation=self._attest(finished, result.sandbox, now_ms))
        return agent_draft(attested, self._context.run_id, self._context.agent, trust, now_ms)

    def _trust(self, result: ToolResult) -> Trust:
        # A call that failed before it reached the outside world contains only our own words.
        is_stopped = result.outcome in (Outcome.CANCELLED, Outcome.TIMEOUT)
        if is_stopped and not result.output and not result.made:
            return Trust.SYSTEM
        return result.trust or self._tool.spec.output_trust

    def _source(self, result: ToolResult) -> str:
        if result.source is not None:
            return result.source
        spec = self._tool.spec
        is_remote = Capability.NETWORK in spec.capabilities
        return source_of(spec, self._nature() if is_remote else None)

    def _written(self, result: ToolResult) -> tuple[FileBytes, ...]:
        """Returns the files it wrote. For a call that was stopped, these are the files it may have written."""
        written = result.written
        is_stopped = result.outcome in (Outcome.CANCELLED, Outcome.TIMEOUT)
        if is_stopped and Capability.FS_WRITE in self._tool.spec.capabilities:
            nature = self._nature()
            written = nature.writes if nature is not None else self._judged_writes
        judged = self._call.judged.taint if self._call.judged is not None else ()
        # Written files may hold what was read: a patch of a tainted file leaves a tainted file.
        taint = tuple(dict.fromkeys((*judged, *self._read_taint)))
        return tuple(replace(file, taint=taint) for file in written)

    def _nature(self) -> CallNature | None:
        return read_nature(self._tool, self._arguments, self._context.workspace)

    @property
    def _judged_writes(self) -> tuple[FileBytes, ...]:
        return self._call.judged.writes if self._call.judged is not None else ()

    def _attest(self, finished: ToolFinished, sandbox: str, now_ms: int) -> Attestation:
        signer = self._executor.signer
        unsigned = Attestation(
            key_id=key_id(signer.public_key),
            runtime=self._tool.spec.runtime.value,
            sandbox=sandbox,
            started_at_ms=self._started_at_ms,
            finished_at_ms=max(now_ms, self._started_at_ms),
            input_sha256=hash_input(self._call.arguments),
            output_sha256=hash_output(finished),
            signature="",
        )
        return replace(unsigned, signature=signer.sign(sign_bytes(self._call.tool, finished, unsigned)).hex())


def live_output(executor: ToolExecutor, call: Call, context: ToolCallContext) -> ToolCallContext:
    """Returns a context whose `emit` sends tool.delta frames, redacted as they grow."""
    streams = {name: executor.redactor.stream() for name in ("stdout", "stderr")}
    offsets = dict.fromkeys(streams, 0)

    def emit(stream: str, text: str) -> None:
        safe = streams[stream].feed(text)
        if safe:
            data: dict[str, object] = {
                "call_id": call.call_id,
                "stream": stream,
                "offset": offsets[stream],
                "text": safe,
            }
            offsets[stream] += len(safe)
            executor.hub.live(LiveFrame(context.session_id, context.run_id, "tool.delta", data))

    return replace(context, emit=emit)


def _with_artifacts(output: str, made: tuple[MadeArtifact, ...]) -> str:
    """Returns the text with a line for each body that the call made, so that the signed output names them too."""
    lines = [f"[{each.name}: {each.media_type}, {each.bytes} bytes, artifact {each.artifact_id}]" for each in made]
    return "\n".join([*([output] if output else []), *lines])
