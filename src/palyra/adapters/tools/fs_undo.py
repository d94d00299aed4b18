"""The tool fs.undo: takes back what one earlier call of this session changed in the workspace.

Does not own: judging and applying (the engine does both, as for every draft).
The call only prepares a draft that puts the old content back. So the same rules hold as for any other change, and a file
that changed since stays as it is.
"""

from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.drafts.changes import decode_changes
from palyra.core.drafts.plan import reverse
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.ids import parse_artifact_id
from palyra.core.tools import CallNature, Capability, SealedDraft, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.artifacts import Artifacts
from palyra.ports.drafts import Drafts
from palyra.ports.results import PastResults
from palyra.ports.tools import ToolCallContext

CHANGES_BYTES_MAX = 64 * 1024 * 1024

SPEC = ToolSpec(
    name="fs.undo",
    description=(
        "Takes back what one of your earlier calls changed in the workspace: files it changed or deleted get their old content, "
        "files it created are deleted. A file that changed since stays as it is, and then nothing is taken back."
    ),
    input_schema=arguments_schema(
        {"call_id": text_schema(64, "The id of the call whose changes are taken back.")}, ["call_id"]
    ),
    capabilities=frozenset({Capability.FS_WRITE}),
    effect_class=EffectClass.DRAFTED,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.MEDIUM,
    output_trust=Trust.SYSTEM,
    timeout_s=60.0,
)


class FsUndo:
    spec = SPEC

    def __init__(self, results: PastResults, artifacts: Artifacts, drafts: Drafts) -> None:
        self._results = results
        self._artifacts = artifacts
        self._drafts = drafts

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.DRAFTED, parallel_class=ParallelClass.NEVER)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        call_id = arguments.get("call_id")
        if not isinstance(call_id, str):
            return failed("arguments_invalid", "call_id is the id of an earlier call")
        past = await self._results.find(context.session_id, call_id)
        if past is None or past.changes_artifact_id is None:
            return failed("nothing_to_undo", "this session has no such call, or it changed nothing in the workspace")
        try:
            changes = decode_changes(await self._read(past.changes_artifact_id))
            contents = (await self._read(past.undo_artifact_id),) if past.undo_artifact_id is not None else ()
            undone = tuple(reverse(change) for change in changes)
            change_set = await self._drafts.unpack(context.effect_id, undone, contents)
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        draft = SealedDraft(exit_status=0, change_set=change_set)
        return ToolResult(outcome=Outcome.OK, output=f"[taking back what call {call_id} changed]", draft=draft)

    async def _read(self, artifact_id: str) -> bytes:
        return await self._artifacts.get(parse_artifact_id(artifact_id), 0, CHANGES_BYTES_MAX)
