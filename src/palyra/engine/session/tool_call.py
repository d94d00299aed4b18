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
from functools import partial
from typing import Any

from msgspec.structs import replace

from palyra.core.drafts.changes import CHANGES_INLINE_BYTES_MAX, ChangeSet, digest_changes, encode_changes
from palyra.core.events import Draft
from palyra.core.events.base import JsonObject
from palyra.core.events.draft import ToolDrafted
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
from palyra.core.ids import ArtifactId, MemoryId
from palyra.core.previews import preview_spilled
from palyra.core.redaction import Redactor
from palyra.core.run.call import Call
from palyra.core.taint import label, source_of
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX, CallNature, Capability, Runtime, SealedDraft, ToolResult, failed
from palyra.core.trust import Trust, is_tainting
from palyra.core.writes import LinkArtifact, MentionMemory, SealSecret, Write
from palyra.engine.hub import Hub, LiveFrame
from palyra.engine.session.attestor import Attested, attest
from palyra.engine.session.call_nature import read_nature
from palyra.engine.session.drafts import agent_draft
from palyra.engine.session.file_taint import file_source, tainted_names
from palyra.engine.session.long_changes import beside_loop
from palyra.engine.session.long_texts import LiveFeed, redact_text
from palyra.engine.session.real_arguments import ArgumentRestorer
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.sealer import Sealer
from palyra.ports.signer import Signer
from palyra.ports.tools import Tool, ToolCallContext
from palyra.ports.views import ProvenanceViews

# Tools of these capabilities print or keep what a model wrote into their arguments. The others only look.
WRITES_MODELS_WORDS = frozenset({Capability.PROCESS_EXEC, Capability.FS_WRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a call left besides its text."""

    made: tuple[MadeArtifact, ...] = ()
    changes_artifact_id: str | None = None
    changes_count: int = 0
    undo_artifact_id: str | None = None


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
        """Reports a call that its run ended with. What was asked of somebody else may take effect all the same (L2)."""
        is_ended = self._tool.spec.runtime in (Runtime.SHELL, Runtime.WASM)  # A sandboxed program ended with its call.
        if self._is_once and not is_ended:
            return self._doubted(), ()
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
        tainted = await tainted_names(self._executor.provenance, result.read, result.named)
        if not tainted:
            return result
        source = file_source(tainted, self._tool.spec.name)
        self._read_taint = (source,)
        return replace(result, trust=Trust.EXTERNAL, source=source)

    async def _finished(self, result: ToolResult) -> tuple[Draft, tuple[Write, ...]]:
        made, links = await self._keep_made(result)
        redacted = await redact_text(
            self._executor.redactor.for_run(self._context.run_id), _with_artifacts(result.output, made)
        )
        run_id = self._context.run_id
        writes: list[Write] = [
            SealSecret(run_id, secret.id, self._executor.sealer.seal(secret.value.encode(), run_id.encode()))
            for secret in redacted.secrets
        ]
        writes.extend(links)
        if result.memory_ids:
            mentioned = tuple(MemoryId(memory_id) for memory_id in result.memory_ids)
            writes.append(MentionMemory(mentioned, self._context.session_id))
        body = redacted.text.encode("utf-8", "replace")
        artifact_id: ArtifactId | None = None
        shown = body.decode()
        if len(body) > OUTPUT_INLINE_BYTES_MAX:
            artifact_id = await self._executor.artifacts.put(body)
            writes.append(self._link(result, artifact_id, len(body), "text/plain"))
            shown = await asyncio.to_thread(preview_spilled, shown, artifact_id)
        told = replace(result, output=shown)
        if result.draft is not None:
            listed = await self._list_changes(result, result.draft.change_set, writes)
            return replace_data(self._drafted(told, result.draft, artifact_id), listed), tuple(writes)
        changed = await self._keep_changed(result, writes)
        return self._report(told, artifact_id, Extras(made=made, **changed)), tuple(writes)

    def _drafted(self, result: ToolResult, sealed: SealedDraft, artifact_id: ArtifactId | None) -> Draft:
        """Reports a command that ended in its draft. Its outcome is recorded once its changes are settled."""
        change_set, trust, now_ms = sealed.change_set, self._trust(result), self._executor.clock.now_ms()
        drafted = ToolDrafted(
            call_id=self._call.call_id,
            effect_id=self._call.effect_id,
            exit_status=sealed.exit_status,
            digest="",  # It comes with the list of the changes.
            changes_count=len(change_set.changes),
            trust=trust,
            left_out=change_set.left_out,
            left_out_count=change_set.left_out_count,
            outcome=result.outcome,
            error=result.error,
            output=result.output,
            artifact_id=artifact_id,
            source=self._source(result) if is_tainting(trust) else None,
            runtime=self._tool.spec.runtime.value,
            sandbox=result.sandbox,
            started_at_ms=self._started_at_ms,
        )
        return agent_draft(drafted, self._context.run_id, self._context.agent, trust, now_ms)

    async def _list_changes(self, result: ToolResult, change_set: ChangeSet, writes: list[Write]) -> dict[str, Any]:
        """Returns the fields that list the changes: in the event itself, or a long list as an artifact."""
        body = await beside_loop(encode_changes, change_set.changes)
        digest = await beside_loop(digest_changes, change_set.changes)
        if len(body) <= CHANGES_INLINE_BYTES_MAX:
            return {"changes": change_set.changes, "digest": digest}
        artifact_id = await self._executor.artifacts.put(body)
        writes.append(self._link(result, artifact_id, len(body), "application/json"))
        return {"changes_artifact_id": artifact_id, "digest": digest}

    async def _keep_changed(self, result: ToolResult, writes: list[Write]) -> dict[str, Any]:
        """Stores what a call itself changed, and what that replaced, so that it can be shown and undone."""
        changed = result.changed
        if changed is None or not changed.changes:
            return {}
        kept: dict[str, Any] = {"changes_count": len(changed.changes)}
        bodies = {"changes_artifact_id": encode_changes(changed.changes), "undo_artifact_id": changed.undo}
        for name, stored in bodies.items():
            if stored is not None:
                kept[name] = await self._executor.artifacts.put(stored)
                writes.append(self._link(result, kept[name], len(stored), "application/octet-stream"))
        return kept

    def _link(self, result: ToolResult, artifact_id: ArtifactId, size_bytes: int, media_type: str) -> LinkArtifact:
        """Links an artifact with the origin of its body, so that reading it later brings the taint back (L8)."""
        trust, now_ms = self._trust(result), self._executor.clock.now_ms()
        source = self._source(result) if is_tainting(trust) else None
        if self._tool.spec.capabilities & WRITES_MODELS_WORDS:
            trust, source = kept_origin(self._call, trust, source)
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
            made.append(
                MadeArtifact(
                    artifact_id=artifact_id,
                    name=body.name,
                    media_type=body.media_type,
                    bytes=size,
                    is_shown=body.is_shown,
                )
            )
        return tuple(made), links

    def _report(self, result: ToolResult, artifact_id: ArtifactId | None, extras: "Extras | None" = None) -> Draft:
        extras = extras or Extras()
        trust = self._trust(result)
        fence_id, source, tool = fence_of(trust, self._source(result) if is_tainting(trust) else None, self._call.tool)
        finished = ToolFinished(
            call_id=self._call.call_id,
            effect_id=self._call.effect_id,
            outcome=result.outcome,
            error=result.error,
            attestation=None,
            output=result.output,
            artifact_id=artifact_id,
            fence_id=fence_id,
            source=source,
            tool=tool,
            written=self._written(result),
            made=extras.made,
            skill=result.skill,
            memory_ids=result.memory_ids,
            sources=result.sources if is_tainting(trust) else (),
            changes_artifact_id=extras.changes_artifact_id,
            changes_count=extras.changes_count,
            undo_artifact_id=extras.undo_artifact_id,
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
        executed = Attested(
            tool=self._call.tool,
            arguments=self._call.arguments,
            runtime=self._tool.spec.runtime.value,
            sandbox=sandbox,
            started_at_ms=self._started_at_ms,
        )
        return attest(self._executor.signer, finished, executed, now_ms)


def fence_of(trust: Trust, source: str | None, tool: str) -> tuple[str | None, str | None, str | None]:
    """Returns fence, source and tool of a result that came from outside, else nothing.

    The fence is drawn after the content exists, so that no content can hold it.
    """
    if not is_tainting(trust):
        return None, None, None
    return secrets.token_hex(FENCE_ID_LENGTH // 2), source, tool


def kept_origin(call: Call, trust: Trust, source: str | None) -> tuple[Trust, str | None]:
    """Returns the origin of bytes that outlive the session's context: at most that of the model's words they hold (L8).

    The result itself needs no such mark, because the session that sees it is tainted already.
    """
    taint = call.judged.taint if call.judged is not None else ()
    if is_tainting(trust) or not taint:
        return trust, source
    return Trust.EXTERNAL, taint[0] if len(taint) == 1 else label("tool", call.tool)


def replace_data(draft: Draft, fields: dict[str, Any]) -> Draft:
    return replace(draft, data=replace(draft.data, **fields))


def live_output(executor: ToolExecutor, call: Call, context: ToolCallContext) -> ToolCallContext:
    """Returns a context whose `emit` sends tool.delta frames, redacted as they grow."""
    offsets = dict.fromkeys(("stdout", "stderr"), 0)

    def send(stream: str, safe: str) -> None:
        data: dict[str, object] = {"call_id": call.call_id, "stream": stream, "offset": offsets[stream], "text": safe}
        offsets[stream] += len(safe)
        executor.hub.live(LiveFrame(context.session_id, context.run_id, "tool.delta", data))

    redactor = executor.redactor.for_run(context.run_id)
    feeds = {name: LiveFeed(redactor.stream(), partial(send, name)) for name in offsets}
    return replace(context, emit=lambda stream, text: feeds[stream].feed(text))


def _with_artifacts(output: str, made: tuple[MadeArtifact, ...]) -> str:
    """Returns the text with a line for each body that the call made, so that the signed output names them too."""
    lines = [f"[{each.name}: {each.media_type}, {each.bytes} bytes, artifact {each.artifact_id}]" for each in made]
    return "\n".join([*([output] if output else []), *lines])
