"""Outcomes of effects that cannot be recorded: what the tape says in their place.

Does not own: recording (session_loop).
"""

from msgspec.structs import replace

from palyra.core.errors import PalyraError
from palyra.core.events import Data, Draft
from palyra.core.events.model import ModelError, ModelFailed, ReferenceResolved, UsageRecorded
from palyra.core.events.run import ObjectivesChecked
from palyra.core.events.tool import Outcome, ToolError, ToolFinished, ToolUncertain
from palyra.core.references.parser import parse_references
from palyra.core.run.effects import ApplyDraft, CallModel, CheckObjectives, DiscardDraft, Execute, ResolveReferences
from palyra.core.run.objectives import unchecked
from palyra.core.trust import Trust
from palyra.engine.session.commands import EffectReport


def unrecordable(report: EffectReport, refusal: PalyraError) -> EffectReport:
    """Replaces an outcome that cannot be recorded: it says that the outcome came, and why it is missing.

    The first substitute keeps the spend, which is small and real. The second one, made if that cannot be recorded
    either, keeps nothing, so that the run ends whatever the outcome was.
    """
    said = report.drafts[-1]
    message = f"What came of it could not be recorded ({refusal.code}): {refusal.message}"
    data: Data
    match report.effect:
        case Execute() if isinstance(said.data, ToolUncertain):
            data = said.data
        case Execute(call_id=call_id, effect_id=effect_id) | ApplyDraft(call_id=call_id, effect_id=effect_id):
            error = ToolError(code="unrecordable", message=message)
            data = ToolFinished(
                call_id=call_id, effect_id=effect_id, outcome=Outcome.FAILED, error=error, attestation=None
            )
        case DiscardDraft(call_id=call_id, effect_id=effect_id):
            error = ToolError(code="unrecordable", message=message)
            data = ToolFinished(
                call_id=call_id, effect_id=effect_id, outcome=Outcome.DENIED, error=error, attestation=None
            )
        case CallModel(turn=turn):
            data = ModelFailed(turn=turn, code=ModelError.PROTOCOL, message=message)
        case CheckObjectives(turn=turn):
            count = len(said.data.results) if isinstance(said.data, ObjectivesChecked) else 0
            data = ObjectivesChecked(turn=turn, results=(unchecked(message),) * count)
        case ResolveReferences(text=text):
            return _unread(report, said, message, len(parse_references(text)))
    draft = replace(said, data=data, trust=Trust.SYSTEM)
    spends = tuple(one for one in report.drafts if isinstance(one.data, UsageRecorded))
    kept = () if report.substitutes_count else spends
    return _substitute(report, (*kept, draft))


def _unread(report: EffectReport, said: Draft, message: str, count: int) -> EffectReport:
    """Says of each reference that what it brought could not be recorded."""
    data = ReferenceResolved(raw="", kind="file", ok=False, trust=Trust.SYSTEM, code="unrecordable", warning=message)
    drafts = (replace(said, data=data, trust=Trust.SYSTEM),) * count
    return _substitute(report, drafts)


def _substitute(report: EffectReport, drafts: tuple[Draft, ...]) -> EffectReport:
    count = report.substitutes_count + 1
    return EffectReport(run_id=report.run_id, effect=report.effect, drafts=drafts, substitutes_count=count)
