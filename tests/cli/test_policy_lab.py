"""`palyra policy lab` over a journal that an engine wrote, with prompts that a person answered."""

import asyncio
import json
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.draft import load_draft
from palyra.adapters.policy.folder import FixedPolicies
from palyra.adapters.policy.policy_set import PolicySource, parse_policies
from palyra.adapters.providers.scripted import Script
from palyra.adapters.schema import JsonSchemaCheck
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.app import Home, now_ms
from palyra.app.lab import Lab, LabReport, LabRequest, ReplayDependencies
from palyra.cli.commands import policy_lab
from palyra.cli.main import app
from palyra.cli.terminal.policy_lab_view import draw_report, print_drawn
from palyra.core.errors import Conflict, Unavailable
from palyra.core.events.tool import ApprovalRequested, Decision, EffectClass, ParallelClass, Verdict
from palyra.core.ids import Principal, SessionId, StreamId, digest_call
from palyra.core.lab import Gap, LabAnswers, VerdictChange
from palyra.core.lab_cedar import permit_text, quoted
from palyra.core.lab_grants import GrantProposal
from palyra.core.tools import CallNature, Runtime, ToolSpec
from palyra.engine.api.requests import ApprovalAnswer
from palyra.engine.engine import Engine
from palyra.ports.policy import PolicyQuestion
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

MINE = """
@id("notes_ask")
forbid (principal, action == Action::"call", resource == Tool::"fs.write")
when { context.folders.contains("notes") } unless { context.approved };
"""
NO_MORE = """
@id("drafts_denied")
forbid (principal, action == Action::"call", resource == Tool::"fs.write")
when { context.folders.contains("drafts") };
@id("reads_ask")
forbid (principal, action == Action::"call", resource == Tool::"time.now") unless { context.approved };
"""
WRITES = [*(f"notes/{n}.md" for n in range(4)), "drafts/a.md"]
SENDS = ["ping"] * 3 + ["spam"]
SECRET = "sk-" + "abcdEFGH1234" * 4


class Prepared:
    """A home whose owner was asked about notes and sends, and allowed all but one."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.policies = root / "policies"
        self.policies.mkdir(parents=True)
        (self.policies / "mine.cedar").write_text(MINE)
        self.shop = Workshop(root, [Script(turns=(*_turns(), says("Done.")))])
        self.shop.policy = load_draft((), self.policies)
        asyncio.run(self._work())

    def lab(self, *drafts: Path, **changes: Any) -> LabReport:
        agents = self.shop.agents
        dependencies = ReplayDependencies(ToolCatalog(self.shop.tools), agents, JsonSchemaCheck())
        request = replace(LabRequest(since_ms=0, now_ms=now_ms()), **changes)
        return Lab(self.home, dependencies, drafts, request).run(lambda _done, _total: None)

    async def _work(self) -> None:
        async with self.shop.open() as engine:
            record = await engine.runs.start(OWNER, ask())
            answering = asyncio.create_task(self._answer(engine, record.id))
            await finished(engine, record)
            answering.cancel()

    async def _answer(self, engine: Engine, run_id: Any) -> None:
        async for frame in await engine.runs.follow(OWNER, run_id, None):
            data = getattr(frame, "data", None)
            if isinstance(data, ApprovalRequested):
                await _decide(engine, data)


def _turns() -> list[Any]:
    writes = [calls("fs.write", path=path, content=f"text of {path}") for path in WRITES]
    sends = [calls("mark.send", text=text) for text in [*SENDS, f"key {SECRET}"]]
    return [*writes, *sends, calls("time.now"), calls("no.tool", a=1), calls("fs.write", path="notes/x")]


async def _decide(engine: Engine, request: ApprovalRequested) -> None:
    record = await engine.approvals.get(OWNER, request.approval_id)
    arguments = record.arguments if isinstance(record.arguments, dict) else {}
    decision = Decision.DENY if arguments.get("text") == "spam" else Decision.ALLOW
    await engine.approvals.answer(OWNER, request.approval_id, ApprovalAnswer(decision=decision))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("lab") / "home")


@pytest.fixture
def draft(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


Drafting = Callable[[str, str], Path]


def palyra(prepared: Prepared, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--home", str(prepared.home.root), "policy", "lab", *arguments])


def test_a_draft_shows_prompts_that_vanish_and_calls_it_denies(prepared: Prepared, draft: Drafting) -> None:
    result = palyra(prepared, str(draft("mine.cedar", NO_MORE)), "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert answer["changes"] == {"prompt_vanishes": 4, "newly_denied": 1, "new_prompt": 1}
    assert answer["now"] == {"ask": 4, "allow": 2}
    assert answer["draft"] == {"allow": 4, "deny": 1, "ask": 1}
    vanishing = next(group for group in answer["groups"] if group["change"] == "prompt_vanishes")
    assert (vanishing["tool"], vanishing["place"], vanishing["now"]["rule"]) == ("fs.write", "notes/", "mine/notes_ask")
    assert vanishing["answers"] == {"allowed_count": 4, "denied_count": 0, "unanswered_count": 0}


def test_what_could_not_be_replayed_is_counted_with_its_reason(prepared: Prepared) -> None:
    answer = json.loads(palyra(prepared, "--json").stdout)
    # The marks' tools are no part of a daemon's catalog; one tool never existed, and one call lacked an argument.
    assert answer["not_replayed"] == {"tool_unknown": len(SENDS) + 1, "before_policy": 2}
    assert answer["proposals_count"] == answer["replayed_count"] + 7


def test_the_current_policies_as_a_draft_change_nothing(prepared: Prepared) -> None:
    result = palyra(prepared, str(prepared.policies / "mine.cedar"))
    assert result.exit_code == 0
    assert "Every recorded call would have had the same verdict." in result.stdout


def test_text_shows_both_sets_side_by_side(prepared: Prepared, draft: Drafting) -> None:
    text = palyra(prepared, str(draft("mine.cedar", NO_MORE)), "--since", "30d").stdout
    assert "6 recorded calls replayed, since 30d." in text
    assert "Prompts that would vanish: would run unasked (4 calls)" in text
    assert "4 of 4 allowed" in text
    assert "Newly denied: would be refused (1 call)" in text
    assert "5 of tools that are no longer there" in text


def test_a_draft_that_is_broken_or_missing_is_an_error(prepared: Prepared, draft: Drafting) -> None:
    broken = palyra(prepared, str(draft("d.cedar", "permit (principal")))
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert broken.stderr.startswith("error: policy_invalid: d.cedar:1: ")
    assert palyra(prepared, "/nowhere/d.cedar").exit_code == 1


@pytest.mark.parametrize("arguments", [("--ttl", "31d"), ("--ttl", "soon"), ("--what",)])
def test_wrong_usage_exits_with_2(prepared: Prepared, arguments: tuple[str, ...]) -> None:
    assert palyra(prepared, *arguments).exit_code == 2


def test_time_and_principal_narrow_what_is_replayed(prepared: Prepared) -> None:
    nobody = json.loads(palyra(prepared, "--principal", "user:bob", "--json").stdout)
    assert nobody["proposals_count"] == 0
    assert prepared.lab(since_ms=now_ms() + 60_000).comparison.proposals_count == 0
    assert palyra(prepared, "--since", "tomorrow").stderr.startswith("error: time_invalid: ")
    assert palyra(prepared, "--principal", "bob").exit_code == 1


def test_a_home_without_a_journal_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--home", str(tmp_path), "policy", "lab"])
    assert (result.exit_code, result.stderr[:23]) == (1, "error: journal_missing:")


def test_a_grant_that_a_forbid_would_void_says_so(prepared: Prepared) -> None:
    (grant,) = json.loads(palyra(prepared, "--json").stdout)["grants"]
    assert (grant["held_by"], grant["answers"]["allowed_count"]) == ("mine/notes_ask", 4)
    assert grant["opens"][0] == "fs.write on any file in notes/ and below it, whatever its content"
    assert "palyra approvals allow ID --scope timeboxed --ttl 168h" in palyra(prepared).stdout


def test_a_proposed_policy_spares_exactly_the_prompts_it_shows(prepared: Prepared, tmp_path: Path) -> None:
    report = prepared.lab()
    free = next(each for each in report.suggestions if each.held_by is None)
    assert free.policy is not None
    assert (free.grant.tool, free.grant.answers.allowed_count) == ("mark.send", 3)
    assert free.opens[0] == 'mark.send with exactly these arguments: text: "ping"'
    (tmp_path / "given.cedar").write_text(free.policy)
    given = prepared.lab(tmp_path / "given.cedar").comparison
    assert given.changes[VerdictChange.PROMPT_VANISHES] == free.grant.answers.prompts_count == 3
    assert set(given.changes) == {VerdictChange.PROMPT_VANISHES, VerdictChange.UNCHANGED}
    late = prepared.lab(tmp_path / "given.cedar", now_ms=free.grant.expires_at_ms).comparison
    assert set(late.changes) == {VerdictChange.UNCHANGED}


def test_policies_are_saved_to_a_new_file_only(prepared: Prepared, tmp_path: Path) -> None:
    """A daemon's own tools ask by forbids alone, which no policy overrules, so here nothing is there to save."""
    nothing = palyra(prepared, "--save", str(tmp_path / "none.cedar"), "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["grants_count"]) == (0, 1)
    assert "was not written" in nothing.stderr
    target = tmp_path / "grants.cedar"
    policy_lab._save(prepared.lab(), target)
    assert (
        len(parse_policies((PolicySource("grants", target.read_text()),)).entries) == len(parse_policies().entries) + 1
    )
    with pytest.raises(Conflict, match="exists already"):
        policy_lab._save(prepared.lab(), target)
    with pytest.raises(Unavailable, match="cannot be written"):
        policy_lab._save(prepared.lab(), tmp_path / "nowhere" / "grants.cedar")


def test_a_policy_to_copy_is_never_wrapped(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    report = prepared.lab()
    print_drawn(lambda console: draw_report(console, report, "30d", False))
    text = capsys.readouterr().out
    policies = [each.policy for each in report.suggestions if each.policy is not None and each.held_by is None]
    assert policies
    assert all(policy.rstrip() in text for policy in policies)
    assert max(len(line) for policy in policies for line in policy.splitlines()) < 80


def test_denied_calls_and_calls_with_secrets_are_never_proposed(prepared: Prepared) -> None:
    report = prepared.lab()
    assert "spam" not in str([each.grant.constraints for each in report.suggestions])
    assert (report.masked_prompts_count, report.comparison.masked_count) == (1, 1)


def test_the_journal_is_read_beside_a_running_daemon(prepared: Prepared) -> None:
    async def look() -> int:
        async with prepared.shop.open():
            return (await asyncio.to_thread(prepared.lab)).comparison.proposals_count

    assert asyncio.run(look()) == len(WRITES) + len(SENDS) + 4


def test_nothing_in_the_home_is_written(prepared: Prepared) -> None:
    def contents() -> dict[Path, bytes]:
        """Without the two files that SQLite makes to read beside a writer."""
        files = [path for path in prepared.home.root.rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files if not path.name.endswith(("-wal", "-shm"))}

    before = contents()
    assert prepared.lab().comparison.gaps == {Gap.BEFORE_POLICY: 2}
    assert contents() == before


def test_an_agent_that_is_gone_is_a_gap(prepared: Prepared) -> None:
    dependencies = ReplayDependencies(ToolCatalog(prepared.shop.tools), {}, JsonSchemaCheck())
    report = Lab(prepared.home, dependencies, (), LabRequest(since_ms=0, now_ms=now_ms())).run(lambda *_: None)
    assert report.comparison.gaps[Gap.AGENT_UNKNOWN] == len(WRITES) + len(SENDS) + 2


names = st.text(min_size=1, max_size=30)
folders = names.filter(lambda name: posixpath.normpath(name) == name and not name.startswith((".", "/")))
places = st.one_of(
    names.map(lambda name: {"file": name}),
    folders.map(lambda name: {"folder": name}),
    st.just({"arguments_sha256": ""}),
)


@st.composite
def grant_proposals(draw: st.DrawFn) -> GrantProposal:
    tool, place = draw(names), draw(places)
    exact = {"arguments_sha256": digest_call(tool, {})} if "arguments_sha256" in place else {}
    return GrantProposal(
        tool=tool,
        principal=Principal(draw(names)),
        agent=draw(names),
        taint=tuple(draw(st.lists(names, max_size=3))),
        constraints=(),
        free=("content",),
        paths_seen=(draw(names),),
        paths_count=1,
        answers=LabAnswers(allowed_count=3),
        first_at_ms=0,
        last_at_ms=1,
        expires_at_ms=1_800_000_000_000,
        example=None,
        **({"arguments_sha256": None, "file": None, "folder": None} | place | exact),
    )


@given(grant_proposals(), names)
def test_a_proposed_policy_is_good_cedar_and_permits_no_more_than_it_names(grant: GrantProposal, other: str) -> None:
    text = permit_text(grant)
    assert text is not None
    current = FixedPolicies(parse_policies((PolicySource("lab", text),)))
    policy = CedarPolicy(current, lambda: grant.expires_at_ms - 1)
    question = _question(grant)
    assert policy.judge(question).verdict is Verdict.ALLOW
    beyond = (
        replace(question, agent=f"{grant.agent}{other}"),
        replace(question, principal=Principal(f"{grant.principal}{other}")),
        replace(question, spec=replace(question.spec, name=f"{grant.tool}{other}")),
        replace(question, taint=(*grant.taint, f"{other}!")),
    )
    assert {policy.judge(each).verdict for each in beyond} == {Verdict.ASK}
    assert CedarPolicy(current, lambda: grant.expires_at_ms).judge(question).verdict is Verdict.ASK
    elsewhere = replace(question.nature, paths=(f"{question.nature.paths[0]}{other}", "y"))
    verdict = policy.judge(replace(question, nature=elsewhere, arguments={"other": other})).verdict
    assert verdict is Verdict.ASK


@given(st.text(max_size=40))
def test_a_quoted_text_means_itself_in_cedar(text: str) -> None:
    policy = f"permit (principal, action, resource) when {{ context.word == {quoted(text)} }};"
    request = {"principal": 'P::"p"', "action": 'A::"a"', "resource": 'R::"r"', "context": {"word": text}}
    assert cedarpy.is_authorized(request, policy, []).allowed


def _question(grant: GrantProposal) -> PolicyQuestion:
    """A call the policy is meant for, by a tool that asks unless something permits it, and that no rule of taint holds."""
    spec = ToolSpec(
        name=grant.tool,
        description="",
        input_schema={},
        effect_class=EffectClass.IDEMPOTENT,
        runtime=Runtime.MCP,
    )
    path = grant.file if grant.file is not None else f"{grant.folder or 'x'}/inner/file"
    nature = CallNature(effect_class=EffectClass.IDEMPOTENT, parallel_class=ParallelClass.NEVER, paths=(path,))
    return PolicyQuestion(
        principal=grant.principal,
        agent=grant.agent,
        session_id=SessionId(StreamId("01JXQ0Z7N8E4T5Y6W7V8S9R0QP")),
        spec=spec,
        arguments={},
        nature=nature,
        taint=(),
    )
