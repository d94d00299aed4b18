"""The policy lab: classes that partition all calls, groups that are summed honestly, and grants that open what they show."""

import json
import posixpath
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.events import Data
from palyra.core.events.base import ErasedData
from palyra.core.events.run import EndReason, RunAccepted, RunDone, RunLimits
from palyra.core.events.session import SessionCreated
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Grant,
    ParallelClass,
    Risk,
    Scope,
    ToolJudged,
    ToolProposed,
    Verdict,
)
from palyra.core.grants import GrantCase, Operator, covers
from palyra.core.ids import ApprovalId, CallId, GrantId, Principal, RunId, SessionId, StreamId
from palyra.core.lab import (
    EXAMPLES_MAX,
    GROUPS_MAX,
    PLACES_LEFT_OUT,
    Gap,
    Judge,
    Proposal,
    Ruling,
    VerdictChange,
    change_between,
    compare,
    place_of,
    settle,
)
from palyra.core.lab_grants import ALLOWED_MIN, GrantHistory, GrantProposal, folder_of
from palyra.core.lab_proposals import Fact, TapeReader
from palyra.core.tools import CallNature

OWNER = Principal("user:owner")
SESSION = SessionId(StreamId("01JXQ0Z7N8E4T5Y6W7V8S9R0QP"))
RUN = RunId("01JXQ0Z7N8E4T5Y6W7V8S9R0QQ")
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
ALLOWED, DENIED, EXPIRED = ApprovalStatus.ALLOWED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED
PROMPTED = (ALLOWED, DENIED, EXPIRED, ApprovalStatus.CANCELLED, ApprovalStatus.PENDING)


def proposal(tool: str = "fs.write", answer: ApprovalStatus | None = None, **changes: Any) -> Proposal:
    arguments = changes.pop("arguments", {"path": "notes/a.md", "content": "x"})
    path = arguments.get("path")
    nature = CallNature(
        effect_class=EffectClass.IDEMPOTENT,
        parallel_class=ParallelClass.PATH_SCOPED,
        paths=(posixpath.normpath(path),) if isinstance(path, str) else (),
    )
    made = Proposal(
        session_id=SESSION,
        call_id=CallId("c1_V8S9R0QQ"),
        at_ms=NOW_MS,
        principal=OWNER,
        agent="main",
        channel="cli",
        can_ask=True,
        tool=tool,
        arguments=arguments,
        taint=(),
        nature=nature,
        risk=Risk.MEDIUM,
        verdict=Verdict.ALLOW if answer is None else Verdict.ASK,
        rule="some_rule",
        answer=answer,
    )
    return replace(made, **changes)


rulings = st.builds(Ruling, st.sampled_from(Verdict), st.sampled_from(["one", "two"]))
segments = st.sampled_from(["notes", "src", "a", "b", "..", ".", ""])
paths = st.lists(segments, min_size=1, max_size=4).map("/".join).filter(bool)
file_arguments = st.fixed_dictionaries(
    {"path": paths}, optional={"content": st.sampled_from(["x", "y", "z" * 600]), "mode": st.integers(0, 1)}
)
other_arguments = st.fixed_dictionaries({"text": st.sampled_from(["hi", "ho"])}, optional={"to": st.just("bob")})
taints = st.sampled_from([(), ("external",), ("mail", "web")])
proposals = st.builds(
    lambda tool_arguments, changes: proposal(tool_arguments[0], arguments=tool_arguments[1], **changes),
    st.one_of(
        st.tuples(st.sampled_from(["fs.write", "fs.read"]), file_arguments),
        st.tuples(st.sampled_from(["mark.send", "fs.patch"]), other_arguments),
    ),
    st.fixed_dictionaries(
        {
            "taint": taints,
            "can_ask": st.booleans(),
            "agent": st.sampled_from(["main", "coder"]),
            "principal": st.sampled_from([OWNER, Principal("user:alice")]),
            "grant_id": st.sampled_from([None, GrantId("g")]),
            "rule": st.sampled_from(["some_rule", "uncertain_repeat", "nobody_to_ask", "refused_before"]),
            "answer": st.sampled_from([None, *PROMPTED]),
        }
    ),
)


# Habits: calls much like each other, mostly allowed, and a few of any kind among them.
habits = st.builds(
    lambda folder, name, content, taint: proposal(arguments={"path": f"{folder}/{name}"} | content, taint=taint),
    st.sampled_from(["notes", "notes", "notes/a", "./notes", ".", "src/../src", ".."]),
    st.sampled_from(["x", "y", "a/z"]),
    st.sampled_from([{"content": "x"}, {"content": "y"}, {"content": "y" * 600}, {}]),
    st.sampled_from([(), (), (), ("external",)]),
)
answers = st.sampled_from([*[ALLOWED] * 20, *PROMPTED])
histories = st.lists(
    st.builds(
        lambda call, answer: replace(call, answer=answer),
        st.one_of(habits, habits, st.just(proposal()), proposals),
        answers,
    ),
    max_size=40,
)


class Policies:
    """Answers each tool with its own ruling, as a set of policies would."""

    def __init__(self, by_tool: dict[str, Ruling]) -> None:
        self._by_tool = by_tool

    def __call__(self, asked: Proposal) -> Ruling:
        return self._by_tool.get(asked.tool, Ruling(Verdict.DENY, "no_rule"))


policies = st.dictionaries(st.sampled_from(["fs.write", "fs.read", "mark.send", "fs.patch"]), rulings).map(Policies)


@given(st.lists(st.one_of(proposals, st.sampled_from(Gap)), max_size=30), policies, policies)
def test_classes_partition_all_proposals(found: list[Proposal | Gap], now: Policies, draft: Policies) -> None:
    result = compare(found, now, draft)
    assert result.proposals_count == len(found)
    assert sum(result.changes.values()) == result.replayed_count == sum(isinstance(each, Proposal) for each in found)
    assert sum(result.before.values()) == sum(result.after.values()) == result.replayed_count
    for change in set(VerdictChange) - {VerdictChange.UNCHANGED}:
        grouped = sum(group.calls_count for group in result.groups if group.shape.change is change)
        assert grouped == result.changes.get(change, 0)


@given(st.lists(proposals, max_size=30), policies)
def test_a_draft_equal_to_the_current_set_changes_nothing(found: list[Proposal], now: Policies) -> None:
    for draft in (now, lambda asked: now(asked)):
        result = compare(found, now, draft)
        assert set(result.changes) <= {VerdictChange.UNCHANGED}
        assert result.before == result.after
        assert result.groups == ()


@given(proposals, rulings, rulings)
def test_a_change_says_exactly_what_the_verdicts_do(asked: Proposal, now: Ruling, draft: Ruling) -> None:
    before, after = settle(now, asked), settle(draft, asked)
    change = change_between(before, after)
    assert (change is VerdictChange.UNCHANGED) == (before is after)
    assert (after is Verdict.DENY and before is not Verdict.DENY) == (change is VerdictChange.NEWLY_DENIED)
    assert (before is Verdict.ASK and after is Verdict.ALLOW) == (change is VerdictChange.PROMPT_VANISHES)
    assert (before is Verdict.DENY and after is Verdict.ALLOW) == (change is VerdictChange.NEWLY_ALLOWED)


@pytest.mark.parametrize(
    ("verdict", "changes", "expected"),
    [
        (Verdict.ASK, {}, Verdict.ASK),
        (Verdict.ASK, {"can_ask": False}, Verdict.DENY),
        (Verdict.ASK, {"grant_id": GrantId("g")}, Verdict.ALLOW),
        (Verdict.ALLOW, {"rule": "uncertain_repeat"}, Verdict.ASK),
        (Verdict.ASK, {"rule": "uncertain_repeat", "grant_id": GrantId("g")}, Verdict.ASK),
        (Verdict.DENY, {"grant_id": GrantId("g")}, Verdict.DENY),
        (Verdict.ALLOW, {"can_ask": False}, Verdict.ALLOW),
        (Verdict.ALLOW, {"rule": "refused_before"}, Verdict.DENY),
    ],
)
def test_grants_doubts_and_askers_count_as_at_the_gate(
    verdict: Verdict, changes: dict[str, Any], expected: Verdict
) -> None:
    assert settle(Ruling(verdict, "r"), proposal(**changes)) is expected


def test_a_group_tells_how_people_had_answered() -> None:
    found = [proposal(answer=answer) for answer in (*[ALLOWED] * 5, DENIED, EXPIRED)]
    result = compare(found, _always(Verdict.ASK), _always(Verdict.ALLOW))
    (group,) = result.groups
    assert (group.shape.change, group.shape.tool, group.shape.place) == (
        VerdictChange.PROMPT_VANISHES,
        "fs.write",
        "notes/",
    )
    assert (group.answers.allowed_count, group.answers.denied_count, group.answers.unanswered_count) == (5, 1, 1)
    assert len(group.examples) == EXAMPLES_MAX


def test_calls_in_other_folders_are_other_groups() -> None:
    found = [proposal(arguments={"path": f"{folder}/f", "content": "x"}) for folder in ("a", "b", "a")]
    result = compare(found, _always(Verdict.ALLOW), _always(Verdict.DENY))
    assert [(group.shape.place, group.calls_count) for group in result.groups] == [("a/", 2), ("b/", 1)]


def test_what_is_kept_does_not_grow_with_the_journal() -> None:
    found = (proposal(arguments={"path": f"d{n}/f", "content": "x" * 1000}) for n in range(GROUPS_MAX + 500))
    result = compare(found, _always(Verdict.ALLOW), _always(Verdict.ASK))
    assert len(result.groups) == GROUPS_MAX + 1
    rest = next(group for group in result.groups if group.shape.place == PLACES_LEFT_OUT)
    assert rest.calls_count == 500
    assert all(len(example.text) <= 160 for group in result.groups for example in group.examples)


def test_verdicts_that_changed_since_and_masked_secrets_are_counted() -> None:
    masked = proposal(arguments={"path": "notes/a", "content": "key ‹secret:api_key:0123456789ab›"})
    result = compare([masked, proposal(answer=ALLOWED)], _always(Verdict.ALLOW), _always(Verdict.ALLOW))
    assert (result.masked_count, result.drifted_count) == (1, 1)


@pytest.mark.parametrize(
    ("nature", "expected"),
    [
        ({"paths": ("notes/a/x", "notes/b/y")}, "notes/"),
        ({"paths": ("x",)}, "./"),
        ({"paths": ("/etc/passwd", "x")}, "(several roots)"),
        ({"paths": (), "host": "example.org"}, "example.org"),
        ({"paths": (), "commands": ("ls", "ls", "git")}, "ls, git"),
        ({"paths": ()}, ""),
    ],
)
def test_a_place_is_a_folder_a_host_or_programs(nature: dict[str, Any], expected: str) -> None:
    made = proposal()
    assert place_of(replace(made, nature=replace(made.nature, **nature))) == expected


@given(histories, proposals)
def test_a_proposed_grant_never_covers_more_than_it_shows(found: list[Proposal], other: Proposal) -> None:
    for grant in _grants(found):
        for call in (*found, other):
            if _is_covered(grant, call):
                _require_shown(grant, call)


@given(histories)
def test_a_proposed_grant_covers_no_call_that_was_denied(found: list[Proposal]) -> None:
    denied = [each for each in found if each.answer is DENIED]
    assert not [(grant, call) for grant in _grants(found) for call in denied if _is_covered(grant, call)]


@given(histories)
def test_a_proposed_grant_covers_at_least_the_prompts_it_counts(found: list[Proposal]) -> None:
    for grant in _grants(found):
        covered = [each for each in found if each.answer is not None and _is_covered(grant, each)]
        assert len(covered) >= grant.answers.prompts_count >= grant.answers.allowed_count >= ALLOWED_MIN
        assert grant.answers.denied_count == 0


@given(histories)
def test_a_folder_is_proposed_only_where_its_files_were_asked_about(found: list[Proposal]) -> None:
    asked = {posixpath.dirname(posixpath.normpath(str(each.arguments.get("path", "")))) for each in found}
    for grant in _grants(found):
        folder = folder_of(grant)
        assert folder is None or (folder in asked and folder not in (".", "/", ""))


def test_many_files_of_one_folder_become_one_grant_for_that_folder() -> None:
    found = [proposal(answer=ALLOWED, arguments={"path": f"notes/{n}.md", "content": f"{n}"}) for n in range(41)]
    (grant,) = _grants(found)
    assert (folder_of(grant), grant.free, grant.taint) == ("notes", ("content",), ())
    assert (grant.answers.allowed_count, grant.paths_count, grant.expires_at_ms) == (41, 41, NOW_MS + 7 * DAY_MS)


def test_one_file_again_and_again_becomes_a_grant_for_that_file() -> None:
    found = [proposal(answer=ALLOWED, arguments={"path": "notes/day.md", "content": f"{n}"}) for n in range(3)]
    (grant,) = _grants(found)
    assert folder_of(grant) is None
    assert _is_covered(grant, found[0])
    assert not _is_covered(grant, proposal(arguments={"path": "notes/other.md", "content": "1"}))


def test_files_of_the_root_never_become_a_grant_for_the_workspace() -> None:
    found = [proposal(answer=ALLOWED, arguments={"path": f"{n}.md", "content": "x"}) for n in range(20)]
    assert _grants(found) == ()


def test_two_allowed_are_no_habit_and_one_denied_in_the_folder_ends_it() -> None:
    allowed = [proposal(answer=ALLOWED, arguments={"path": f"notes/{n}", "content": "x"}) for n in range(3)]
    denied = proposal(answer=DENIED, arguments={"path": "notes/deep/er/x", "content": "y"}, taint=("external",))
    assert len(_grants(allowed)) == 1
    assert _grants(allowed[:2]) == ()
    assert _grants([*allowed, denied]) == ()
    assert len(_grants([*allowed, replace(denied, agent="coder")])) == 1


def test_prompts_that_ran_out_are_no_denials() -> None:
    (grant,) = _grants([proposal(answer=answer) for answer in (ALLOWED, ALLOWED, ALLOWED, EXPIRED)])
    assert (grant.answers.allowed_count, grant.answers.unanswered_count) == (3, 1)


def test_a_grant_below_another_is_part_of_it() -> None:
    found = [
        proposal(answer=ALLOWED, arguments={"path": f"{folder}/{n}", "content": f"{n}"})
        for folder in ("notes", "notes/2026", "src")
        for n in range(3)
    ]
    assert [(folder_of(grant), grant.answers.allowed_count) for grant in _grants(found)] == [("notes", 6), ("src", 3)]


def test_prompts_after_content_from_outside_are_a_grant_of_their_own() -> None:
    found = [
        proposal(answer=ALLOWED, arguments={"path": f"{folder}/{n}", "content": f"{n}"}, taint=taint)
        for folder, taint in (("notes", ()), ("notes/mail", ("external",)))
        for n in range(3)
    ]
    assert {(folder_of(grant), grant.taint, grant.answers.allowed_count) for grant in _grants(found)} == {
        ("notes", (), 3),
        ("notes/mail", ("external",), 3),
    }


def test_calls_with_a_masked_secret_are_never_proposed() -> None:
    arguments = {"text": "key ‹secret:api_key:0123456789ab›"}
    history = GrantHistory()
    for _ in range(5):
        history.add(proposal("mark.send", answer=ALLOWED, arguments=arguments))
    assert (history.proposals(NOW_MS), history.masked_count) == ((), 5)


def test_an_exact_call_is_proposed_with_its_exact_arguments() -> None:
    found = [proposal("mark.send", answer=ALLOWED, arguments={"text": "ping"}, taint=("external",)) for _ in range(3)]
    (grant,) = _grants(found)
    assert (grant.taint, grant.free) == (("external",), ())
    assert _is_covered(grant, replace(found[0], taint=()))
    assert not _is_covered(grant, replace(found[0], taint=("mail",)))
    assert not _is_covered(grant, replace(found[0], arguments={"text": "pong"}))


def test_a_tape_gives_each_proposal_with_the_answer_it_got() -> None:
    facts = _tape((_call(1, Verdict.ALLOW), _call(2, Verdict.ASK, ALLOWED), _call(3, Verdict.ASK, DENIED)))
    found = [each for each in _read(facts) if isinstance(each, Proposal)]
    assert [(each.verdict, each.answer) for each in found] == [
        (Verdict.ALLOW, None),
        (Verdict.ASK, ALLOWED),
        (Verdict.ASK, DENIED),
    ]
    assert {(each.principal, each.agent, each.channel, each.can_ask) for each in found} == {
        (OWNER, "main", "cli", True)
    }
    assert {each.nature.paths for each in found} == {("notes/a.md",)}


def test_one_answer_counts_for_every_call_its_card_was_about() -> None:
    calls = (_call(1, Verdict.ASK), _call(2, Verdict.ASK))
    facts = [fact for fact in _tape(calls) if not isinstance(fact.data, ApprovalRequested)]
    approval_id = ApprovalId("card")
    card = ApprovalRequested(
        approval_id=approval_id,
        kind=ApprovalKind.TOOL,
        digest="",
        rule="r",
        expires_at_ms=None,
        count=2,
        calls=(CallId("c1"), CallId("c2")),
    )
    answer = ApprovalResolved(
        approval_id=approval_id, status=DENIED, decision=Decision.DENY, decided_by=OWNER, digest=""
    )
    read = _read([*facts[:-1], _fact(card), _fact(answer), facts[-1]])
    assert [each.answer for each in read if isinstance(each, Proposal)] == [DENIED, DENIED]
    covered = replace(answer, status=ALLOWED, decision=Decision.ALLOW, covered_by=GrantId("g"))
    read = _read([*facts[:-1], _fact(card), _fact(covered), facts[-1]])
    assert [each.answer for each in read if isinstance(each, Proposal)] == [ApprovalStatus.CANCELLED] * 2


def test_a_question_nobody_answered_is_pending_at_the_runs_end_and_at_the_tapes() -> None:
    ended = _tape((_call(1, Verdict.ASK),))
    for facts in (ended, ended[:-1]):
        assert [each.answer for each in _read(facts) if isinstance(each, Proposal)] == [ApprovalStatus.PENDING]


@pytest.mark.parametrize(
    ("type_name", "gap"),
    [(ToolProposed.TYPE, Gap.ERASED), (ToolJudged.TYPE, Gap.ERASED), (RunAccepted.TYPE, Gap.ERASED)],
)
def test_erased_parts_of_a_call_are_a_gap(type_name: str, gap: Gap) -> None:
    facts = [_erased(fact) if fact.type == type_name else fact for fact in _tape((_call(1, Verdict.ALLOW),))]
    assert _read(facts) == [gap]


def test_raw_arguments_refusals_before_the_policy_and_unjudged_calls_are_gaps() -> None:
    raw = replace(_call(1, Verdict.DENY), arguments="{oops")
    refused = _call(2, Verdict.DENY, rule="schema")
    unjudged = _call(3, None)
    assert _read(_tape((raw, refused, unjudged))) == [Gap.ARGUMENTS_RAW, Gap.BEFORE_POLICY, Gap.UNJUDGED]


def test_calls_before_the_given_time_are_left_out() -> None:
    facts = _tape((_call(1, Verdict.ASK, ALLOWED),))
    assert _read(facts, since_ms=NOW_MS + 1) == []


@given(
    st.lists(st.tuples(st.sampled_from([*Verdict, None]), st.sampled_from([None, *PROMPTED])), max_size=8), st.data()
)
def test_each_recorded_proposal_is_read_once_whatever_was_erased(
    calls: list[tuple[Verdict | None, ApprovalStatus | None]], data: st.DataObject
) -> None:
    facts = _tape(tuple(_call(n, verdict, answer) for n, (verdict, answer) in enumerate(calls, 1)))
    spoiled = data.draw(st.sets(st.integers(0, len(facts) - 1)))
    read = _read([_erased(fact) if place in spoiled else fact for place, fact in enumerate(facts)])
    is_run_known = 1 not in spoiled
    assert len(read) == len(calls) or not is_run_known


class _Call(ToolProposed, frozen=True, kw_only=True):
    verdict: Verdict | None
    answer: ApprovalStatus | None = None
    rule: str = "some_rule"


def _call(index: int, verdict: Verdict | None, answer: ApprovalStatus | None = None, rule: str = "some_rule") -> _Call:
    return _Call(
        call_id=CallId(f"c{index}"),
        tool="fs.write",
        arguments={"path": "notes/a.md", "content": "x"},
        verdict=verdict,
        answer=answer,
        rule=rule,
    )


def _tape(calls: tuple[_Call, ...]) -> list[Fact]:
    limits = RunLimits(wall_clock_ms=1, max_tool_calls=1, max_turns=1, parallel_tools=1)
    return [
        _fact(SessionCreated(owner=OWNER, agent="main"), None),
        _fact(RunAccepted(agent="main", origin="cli", can_ask=True, limits=limits)),
        *(fact for call in calls for fact in _call_facts(call)),
        _fact(RunDone(reason=EndReason.FINAL_ANSWER, message="")),
    ]


def _call_facts(call: _Call) -> Iterator[Fact]:
    yield _fact(ToolProposed(call_id=call.call_id, tool=call.tool, arguments=call.arguments))
    if call.verdict is None:
        return
    yield _fact(
        ToolJudged(call_id=call.call_id, verdict=call.verdict, rule=call.rule, reason="", paths=("notes/a.md",))
    )
    approval_id = ApprovalId(f"approval-{call.call_id}")
    if call.verdict is Verdict.ASK:
        request = ApprovalRequested(
            approval_id=approval_id,
            kind=ApprovalKind.TOOL,
            digest="",
            rule=call.rule,
            expires_at_ms=None,
            call_id=call.call_id,
        )
        yield _fact(request)
    if call.answer is not None:
        decision = Decision.ALLOW if call.answer is ALLOWED else Decision.DENY
        yield _fact(
            ApprovalResolved(
                approval_id=approval_id, status=call.answer, decision=decision, decided_by=OWNER, digest=""
            )
        )


def _fact(data: Data, run_id: RunId | None = RUN) -> Fact:
    return Fact(type=data.TYPE, run_id=run_id, at_ms=NOW_MS, data=data)


def _erased(fact: Fact) -> Fact:
    return replace(fact, data=ErasedData(erased="asked"))


def _read(facts: list[Fact], since_ms: int = 0) -> list[Proposal | Gap]:
    reader = TapeReader(SESSION, since_ms)
    return [*(found for fact in facts for found in reader.feed(fact)), *reader.finish()]


def _grants(found: list[Proposal]) -> tuple[GrantProposal, ...]:
    history = GrantHistory()
    for each in found:
        history.add(each)
    return history.proposals(NOW_MS)


def _is_covered(grant: GrantProposal, call: Proposal) -> bool:
    case = GrantCase(
        tool=call.tool,
        arguments=call.arguments,
        taint=call.taint,
        principal=call.principal,
        agent=call.agent,
        now_ms=NOW_MS,
    )
    given = Grant(
        grant_id=GrantId("proposed"),
        tool=grant.tool,
        scope=Scope.TIMEBOXED,
        constraints=grant.constraints,
        taint=grant.taint,
        principal=grant.principal,
        agent=grant.agent,
        expires_at_ms=grant.expires_at_ms,
    )
    late = replace(case, now_ms=grant.expires_at_ms)
    assert not covers(given, late)
    return covers(given, case)


def _require_shown(grant: GrantProposal, call: Proposal) -> None:
    """Everything that may vary in what is covered is among what the proposal names."""
    assert (call.tool, call.principal, call.agent) == (grant.tool, grant.principal, grant.agent)
    assert set(call.taint) <= set(grant.taint)
    fixed = {one.argument: one for one in grant.constraints if one.argument}
    assert set(call.arguments) == {*fixed, *grant.free}
    assert not set(fixed) & set(grant.free)
    path = call.arguments.get("path")
    if call.tool.startswith("fs.") and isinstance(path, str):
        assert "path" in fixed
        folder = fixed["path"].value
        if fixed["path"].operator == Operator.UNDER.value:
            assert f"{posixpath.normpath(path)}/".startswith(f"{folder}/")
        else:
            assert fixed["path"].value == json.dumps(path)
    else:
        assert grant.free == ()


def _always(verdict: Verdict) -> Judge:
    return lambda _asked: Ruling(verdict, "always")
