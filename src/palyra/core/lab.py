"""The policy lab: the verdicts on recorded calls under another set of policies, summed up by shape.

Does not own: reading tapes (lab_proposals), the policies themselves (the caller judges), proposing grants (lab_grants).
Invariants: every proposal falls into exactly one class of change, or is counted as not replayed, with its reason. The
memory in use does not grow with the number of proposals.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalStatus, Risk, Verdict
from palyra.core.grants import REFUSED_BEFORE
from palyra.core.ids import CallId, GrantId, Principal, SessionId
from palyra.core.redaction import find_markers
from palyra.core.tools import CallNature

EXAMPLES_MAX = 3  # Kept for each group: enough to see what it is about.
GROUPS_MAX = 2_000  # More shapes than anyone reads; calls of further shapes are summed up by their tool.
EXAMPLE_CHARS_MAX = 160
VALUE_CHARS_MAX = 60  # Shown of one argument in an example.
COMMANDS_SHOWN_MAX = 4
PLACES_LEFT_OUT = "(other places)"

_UNCERTAIN_REPEAT = "uncertain_repeat"  # The gate's own rule. It asks even if a policy or a grant allows the call.


class Gap(Enum):
    """Why a recorded call could not be replayed."""

    ERASED = "erased"
    ARGUMENTS_RAW = "arguments_raw"
    BEFORE_POLICY = "before_policy"
    UNJUDGED = "unjudged"
    TOOL_UNKNOWN = "tool_unknown"
    AGENT_UNKNOWN = "agent_unknown"
    SCHEMA_CHANGED = "schema_changed"


class VerdictChange(Enum):
    """The change from the verdict under the current policies to that under the draft."""

    NEWLY_ALLOWED = "newly_allowed"
    DENIAL_BECOMES_PROMPT = "denial_becomes_prompt"
    PROMPT_VANISHES = "prompt_vanishes"
    NEW_PROMPT = "new_prompt"
    NEWLY_DENIED = "newly_denied"
    UNCHANGED = "unchanged"


_CHANGES = {
    (Verdict.DENY, Verdict.ALLOW): VerdictChange.NEWLY_ALLOWED,
    (Verdict.DENY, Verdict.ASK): VerdictChange.DENIAL_BECOMES_PROMPT,
    (Verdict.ASK, Verdict.ALLOW): VerdictChange.PROMPT_VANISHES,
    (Verdict.ALLOW, Verdict.ASK): VerdictChange.NEW_PROMPT,
    (Verdict.ALLOW, Verdict.DENY): VerdictChange.NEWLY_DENIED,
    (Verdict.ASK, Verdict.DENY): VerdictChange.NEWLY_DENIED,
}


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it was recorded, with its verdict and answer. `answer` is None where nobody was asked."""

    session_id: SessionId
    call_id: CallId
    at_ms: int
    principal: Principal
    agent: str
    channel: str
    can_ask: bool
    tool: str
    arguments: JsonObject
    taint: tuple[str, ...]
    nature: CallNature
    risk: Risk
    verdict: Verdict
    rule: str
    grant_id: GrantId | None = None
    answer: ApprovalStatus | None = None


class Ruling(msgspec.Struct, frozen=True):
    """A set of policies' verdict on a call, before grants and before it is known whether a person can be asked."""

    verdict: Verdict
    rule: str


Judge = Callable[[Proposal], Ruling]


class LabAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """How people answered the prompts of a shape; each call of a question counts.

    `unanswered` counts prompts that expired, were withdrawn, were covered by a grant given elsewhere, or still wait.
    """

    allowed_count: int = 0
    denied_count: int = 0
    unanswered_count: int = 0

    @property
    def prompts_count(self) -> int:
        return self.allowed_count + self.denied_count + self.unanswered_count


class Example(msgspec.Struct, frozen=True, kw_only=True):
    session_id: SessionId
    call_id: CallId
    at_ms: int
    text: str
    taint: tuple[str, ...]
    answer: ApprovalStatus | None


class LabShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one group have in common."""

    change: VerdictChange
    tool: str
    place: str
    now: Ruling
    draft: Ruling


class LabGroup(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` are the verdicts under both sets, once grants and the possibility to ask are counted in."""

    shape: LabShape
    before: Verdict
    after: Verdict
    calls_count: int
    tainted_count: int
    answers: LabAnswers
    examples: tuple[Example, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`drifted_count` counts replayed calls whose recorded verdict differs from the one under today's policies."""

    replayed_count: int
    gaps: Mapping[Gap, int]
    changes: Mapping[VerdictChange, int]
    before: Mapping[Verdict, int]
    after: Mapping[Verdict, int]
    masked_count: int
    drifted_count: int
    groups: tuple[LabGroup, ...]

    @property
    def proposals_count(self) -> int:
        return self.replayed_count + sum(self.gaps.values())


def compare(proposals: Iterable[Proposal | Gap], judge_now: Judge, judge_draft: Judge) -> Comparison:
    builder = ComparisonBuilder(judge_now, judge_draft)
    for proposal in proposals:
        builder.add(proposal)
    return builder.result()


def settle(ruling: Ruling, proposal: Proposal) -> Verdict:
    """Settles a ruling as the gate does.

    A call that was refused before is denied. A call in doubt asks. A grant that covered the call then answers. If nobody
    can be asked, the call is denied.
    """
    is_doubted = proposal.rule == _UNCERTAIN_REPEAT
    if ruling.verdict is Verdict.DENY or proposal.rule == REFUSED_BEFORE:
        return Verdict.DENY
    if ruling.verdict is Verdict.ALLOW and not is_doubted:
        return Verdict.ALLOW
    if proposal.grant_id is not None and not is_doubted:
        return Verdict.ALLOW
    return Verdict.ASK if proposal.can_ask else Verdict.DENY


def change_between(before: Verdict, after: Verdict) -> VerdictChange:
    return _CHANGES.get((before, after), VerdictChange.UNCHANGED)


def place_of(proposal: Proposal) -> str:
    """Returns the folder, host or programs that a call concerns; empty where its tool names none."""
    nature = proposal.nature
    if nature.paths:
        folders = [posixpath.dirname(posixpath.normpath(path)) or "." for path in nature.paths]
        is_mixed = len({folder.startswith("/") for folder in folders}) > 1
        return "(several roots)" if is_mixed else _as_folder(posixpath.commonpath(folders) or ".")
    if nature.host is not None:
        return nature.host
    programs = list(dict.fromkeys(nature.commands))
    more = " …" if len(programs) > COMMANDS_SHOWN_MAX else ""
    return ", ".join(programs[:COMMANDS_SHOWN_MAX]) + more


def has_masked_secret(arguments: JsonObject) -> bool:
    return bool(find_markers(_as_text(arguments)))


class ComparisonBuilder:
    """Judges proposals one by one and keeps sums, shapes and a few examples of each."""

    def __init__(self, judge_now: Judge, judge_draft: Judge) -> None:
        self._judge_now = judge_now
        self._judge_draft = judge_draft
        self._gaps: Counter[Gap] = Counter()
        self._changes: Counter[VerdictChange] = Counter()
        self._before: Counter[Verdict] = Counter()
        self._after: Counter[Verdict] = Counter()
        self._masked_count = 0
        self._drifted_count = 0
        self._groups: dict[tuple[LabShape, Verdict, Verdict], _Tally] = {}

    def add(self, proposal: Proposal | Gap) -> Ruling | None:
        """Returns the draft's ruling on the proposal; None if it cannot be replayed."""
        if isinstance(proposal, Gap):
            self._gaps[proposal] += 1
            return None
        now = self._judge_now(proposal)
        draft = now if self._judge_draft is self._judge_now else self._judge_draft(proposal)
        before, after = settle(now, proposal), settle(draft, proposal)
        change = change_between(before, after)
        self._changes[change] += 1
        self._before[before] += 1
        self._after[after] += 1
        self._masked_count += has_masked_secret(proposal.arguments)
        self._drifted_count += before is not proposal.verdict
        if change is not VerdictChange.UNCHANGED:
            shape = LabShape(change=change, tool=proposal.tool, place=place_of(proposal), now=now, draft=draft)
            self._tally(shape, before, after).add(proposal)
        return draft

    def result(self) -> Comparison:
        groups = [tally.group(*key) for key, tally in self._groups.items()]
        order = list(VerdictChange)
        groups.sort(key=lambda each: (order.index(each.shape.change), -each.calls_count, each.shape.tool))
        return Comparison(
            replayed_count=self._changes.total(),
            gaps=dict(self._gaps),
            changes=dict(self._changes),
            before=dict(self._before),
            after=dict(self._after),
            masked_count=self._masked_count,
            drifted_count=self._drifted_count,
            groups=tuple(groups),
        )

    def _tally(self, shape: LabShape, before: Verdict, after: Verdict) -> "_Tally":
        key = (shape, before, after)
        if key not in self._groups and len(self._groups) >= GROUPS_MAX:
            key = (msgspec.structs.replace(shape, place=PLACES_LEFT_OUT), before, after)
        return self._groups.setdefault(key, _Tally())


class AnswerCount:
    def __init__(self) -> None:
        self._counts: Counter[ApprovalStatus] = Counter()

    def add(self, answer: ApprovalStatus | None) -> None:
        if answer is not None:
            self._counts[answer] += 1

    def result(self) -> LabAnswers:
        allowed, denied = self._counts[ApprovalStatus.ALLOWED], self._counts[ApprovalStatus.DENIED]
        return LabAnswers(
            allowed_count=allowed, denied_count=denied, unanswered_count=self._counts.total() - allowed - denied
        )


class _Tally:
    def __init__(self) -> None:
        self._calls_count = 0
        self._tainted_count = 0
        self._answers = AnswerCount()
        self._examples: list[Example] = []

    def add(self, proposal: Proposal) -> None:
        self._calls_count += 1
        self._tainted_count += bool(proposal.taint)
        self._answers.add(proposal.answer)
        if len(self._examples) < EXAMPLES_MAX:
            self._examples.append(_example(proposal))

    def group(self, shape: LabShape, before: Verdict, after: Verdict) -> LabGroup:
        return LabGroup(
            shape=shape,
            before=before,
            after=after,
            calls_count=self._calls_count,
            tainted_count=self._tainted_count,
            answers=self._answers.result(),
            examples=tuple(self._examples),
        )


def _example(proposal: Proposal) -> Example:
    text = _in_brief(proposal.arguments)
    return Example(
        session_id=proposal.session_id,
        call_id=proposal.call_id,
        at_ms=proposal.at_ms,
        text=_cut(text, EXAMPLE_CHARS_MAX),
        taint=proposal.taint,
        answer=proposal.answer,
    )


def _in_brief(arguments: JsonObject) -> str:
    """Puts the short arguments first: a path tells more than the text that would be written there."""
    values = {name: msgspec.json.encode(value, order="sorted").decode() for name, value in arguments.items()}
    ordered = sorted(values.items(), key=lambda item: (len(item[1]), item[0]))
    return ", ".join(f"{name}: {_cut(value, VALUE_CHARS_MAX)}" for name, value in ordered)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _as_folder(folder: str) -> str:
    return folder if folder.endswith("/") else f"{folder}/"


def _as_text(arguments: JsonObject) -> str:
    return msgspec.json.encode(arguments, order="sorted").decode()
