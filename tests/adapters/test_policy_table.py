"""The rule table: what is free, what asks, what is refused; and that nothing is allowed by accident."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.policy.rule_table import CONDITIONS, NO_RULE, TABLE, Rule, RuleTable, canonical_text
from palyra.adapters.tools.fs_write import FsWrite
from palyra.core.events.tool import EffectClass, ParallelClass, Verdict
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.tools import CallNature, Capability, Runtime, ToolSpec
from palyra.ports.policy import PolicyQuestion

READ, WRITE = frozenset({Capability.FS_READ}), frozenset({Capability.FS_WRITE})
READ_ONLY, IDEMPOTENT, ONCE = EffectClass.READ_ONLY, EffectClass.IDEMPOTENT, EffectClass.ONCE
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
TAINT = ("external",)
POLICY = RuleTable()


def question(
    capabilities: frozenset[Capability] = frozenset(),
    effect: EffectClass = READ_ONLY,
    paths: tuple[str, ...] = (),
    taint: tuple[str, ...] = (),
    **more: object,
) -> PolicyQuestion:
    runtime = more.get("runtime", Runtime.INTERNAL)
    assert isinstance(runtime, Runtime)
    return PolicyQuestion(
        principal=Principal("user:alice"),
        agent="main",
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        spec=ToolSpec(
            name="t.x",
            description="A tool.",
            input_schema={},
            capabilities=capabilities,
            effect_class=effect,
            runtime=runtime,
        ),
        arguments={},
        nature=CallNature(
            effect_class=effect,
            parallel_class=ParallelClass.NEVER,
            paths=paths,
            is_in_workspace=bool(more.get("is_inside", True)),
        ),
        taint=taint,
    )


@pytest.mark.parametrize(
    ("asked", "verdict", "rule"),
    [
        (question(), ALLOW, "internal_read"),
        (question(taint=TAINT), ALLOW, "internal_read"),
        (question(READ, paths=("a",)), ALLOW, "workspace_read"),
        (question(READ, paths=(".env",), taint=TAINT), ALLOW, "workspace_read"),
        (question(READ, paths=("/etc/passwd",), is_inside=False), DENY, "outside_workspace"),
        (question(WRITE, IDEMPOTENT, ("notes/a.md",)), ALLOW, "workspace_write"),
        (question(WRITE, IDEMPOTENT, ("notes/a.md",), TAINT), ALLOW, "workspace_write"),
        (question(READ | WRITE, IDEMPOTENT, ("a", "b")), ALLOW, "workspace_write"),
        (question(WRITE, IDEMPOTENT, ("AGENTS.md",)), ALLOW, "workspace_write"),
        (question(WRITE, IDEMPOTENT, (".env",)), ALLOW, "workspace_write"),
        (question(WRITE, IDEMPOTENT, ("/etc/x",), TAINT, is_inside=False), DENY, "outside_workspace"),
        (question(WRITE, IDEMPOTENT), DENY, NO_RULE),
        (question(READ), DENY, NO_RULE),
        (question(WRITE, ONCE, ("a",)), ASK, "once_effect"),
        (question(effect=ONCE), ASK, "once_effect"),
        (question(effect=IDEMPOTENT), DENY, NO_RULE),
        (question(frozenset({Capability.NETWORK})), ASK, "network"),
        (question(frozenset({Capability.NETWORK}), taint=TAINT), ASK, "tainted_act"),
        (question(frozenset({Capability.PROCESS_EXEC})), ASK, "process_exec"),
        (question(frozenset({Capability.PROCESS_EXEC}), taint=TAINT), ASK, "tainted_act"),
        (question(frozenset({Capability.MESSAGE_SEND}), ONCE), ASK, "message_send"),
        (question(frozenset({Capability.MEMORY_WRITE}), IDEMPOTENT), ASK, "memory_write"),
        (question(frozenset({Capability.SECRETS_READ})), ASK, "secrets_read"),
        (question(READ | {Capability.NETWORK}, paths=("a",)), ASK, "network"),
        (question(runtime=Runtime.MCP), ASK, "foreign_tool"),
        (question(runtime=Runtime.WASM, effect=ONCE), ASK, "foreign_tool"),
        (question(runtime=Runtime.SHELL), DENY, NO_RULE),
    ],
)
def test_verdict_and_the_rule_that_gave_it(asked: PolicyQuestion, verdict: Verdict, rule: str) -> None:
    answer = POLICY.judge(asked)
    assert (answer.verdict, answer.rule) == (verdict, rule)
    assert answer.reason.endswith(".")


@pytest.mark.parametrize(
    "path",
    [
        "AGENTS.md",
        "agents.md",
        "docs/Skill.MD",
        "MEMORY.md",
        "CLAUDE.md",
        ".env",
        ".github/workflows/x.yml",
        "a/hooks/pre",
    ],
)
def test_instruction_file_asks_with_taint(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,), TAINT)).rule == "tainted_instructions"
    assert POLICY.judge(question(WRITE, IDEMPOTENT, ("fine.txt", path), TAINT)).verdict is ASK


@pytest.mark.parametrize("path", ["AGENTS.md.txt", "my-hooks.md", "a.b/c", "skills/notes.md"])
def test_file_that_only_looks_alike_is_free(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,), TAINT)).verdict is ALLOW


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".git/config", "sub/.GIT/x", ".githooks/a", ".husky/pre-push"]
)
def test_what_git_would_run_asks_without_taint_too(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,))).rule == "git_runs"


def test_question_made_from_a_real_call_is_judged_by_its_real_path() -> None:
    tool = FsWrite()
    nature = tool.nature({"path": "x/../.git/./hooks/a", "content": ""}, ("/srv/ws",))
    asked = question(WRITE, IDEMPOTENT, nature.paths)
    assert POLICY.judge(asked).rule == "git_runs"


questions = st.builds(
    question,
    capabilities=st.frozensets(st.sampled_from(Capability)),
    effect=st.sampled_from(EffectClass),
    paths=st.lists(st.sampled_from(["a", ".env", "AGENTS.md", ".git/x", "/etc/x", ""]), max_size=2).map(tuple),
    taint=st.sampled_from([(), TAINT]),
    runtime=st.sampled_from(Runtime),
    is_inside=st.booleans(),
)


@given(questions)
def test_nothing_is_allowed_without_a_row_that_allows_it(asked: PolicyQuestion) -> None:
    answer = POLICY.judge(asked)
    row = next((rule for rule in TABLE if all(CONDITIONS[name](asked) for name in rule.when)), None)
    assert (answer.verdict, answer.rule) == ((row.verdict, row.name) if row else (DENY, NO_RULE))
    assert RuleTable(()).judge(asked).rule == NO_RULE


@given(questions)
def test_whatever_sends_executes_remembers_or_leaves_never_runs_unasked(asked: PolicyQuestion) -> None:
    harmless = {Capability.FS_READ, Capability.FS_WRITE}
    answer = POLICY.judge(asked)
    if answer.verdict is ALLOW:
        assert asked.spec.capabilities <= harmless
        assert asked.nature.is_in_workspace
        assert asked.nature.effect_class is not ONCE
        assert asked.spec.runtime not in (Runtime.MCP, Runtime.WASM)


@given(questions)
def test_taint_never_makes_a_verdict_milder(asked: PolicyQuestion) -> None:
    order = [ALLOW, ASK, DENY]
    clean, tainted = POLICY.judge(replace(asked, taint=())), POLICY.judge(replace(asked, taint=TAINT))
    assert order.index(tainted.verdict) >= order.index(clean.verdict)


@pytest.mark.parametrize(
    "error", [KeyError, TypeError, ValueError, AttributeError, RecursionError, ZeroDivisionError, OSError]
)
def test_row_that_cannot_be_evaluated_denies_in_its_own_name(error: type[Exception]) -> None:
    def breaks(asked: PolicyQuestion) -> bool:
        raise error("inside")

    policy = RuleTable((Rule("broken", ALLOW, ("breaks",), "Never."), *TABLE), {**CONDITIONS, "breaks": breaks})
    answer = policy.judge(question())
    assert (answer.verdict, answer.rule) == (DENY, "broken")
    assert error.__name__ in answer.reason


def test_condition_nobody_defined_denies() -> None:
    answer = RuleTable((Rule("typo", ALLOW, ("no_such_condition",), "Never."),)).judge(question())
    assert (answer.verdict, answer.rule) == (DENY, "typo")


def test_malformed_question_denies() -> None:
    assert POLICY.judge(None).verdict is DENY  # type: ignore[arg-type]


def test_snapshot_names_the_rule_and_the_whole_table() -> None:
    snapshot = POLICY.judge(question()).snapshot
    assert snapshot is not None
    assert snapshot.policies == ("internal_read",)
    assert len(snapshot.sha256) == 64
    other = RuleTable(TABLE[1:]).judge(question()).snapshot
    assert other is not None
    assert other.sha256 != snapshot.sha256


def test_every_row_has_its_own_name_a_sentence_and_known_conditions() -> None:
    names = [rule.name for rule in TABLE]
    assert len(set(names)) == len(names)
    assert all(rule.sentence.endswith(".") and rule.when and set(rule.when) <= set(CONDITIONS) for rule in TABLE)
    assert all(name in canonical_text(TABLE) for name in names)
