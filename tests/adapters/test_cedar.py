"""Cedar: what the bundled policies free, ask and refuse; who may do what; and that nothing is allowed by accident."""

import re
from pathlib import Path

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.policy import cedar
from palyra.adapters.policy.cedar import NO_POLICY, POLICY_ERROR, BundledPolicies, CedarPolicy
from palyra.adapters.policy.context import MEMBERS, call_context, call_request, folders_of
from palyra.adapters.policy.folder import FixedPolicies
from palyra.adapters.policy.policy_set import (
    ParsedPolicies,
    PolicySource,
    bundled_policies,
    entities,
    parse_policies,
    schema,
)
from palyra.adapters.tools.fs_write import FsWrite
from palyra.core.events.tool import EffectClass, Risk, Verdict
from palyra.core.ids import Principal, digest_call
from palyra.core.tools import Capability, Runtime
from palyra.gateway.access.roles import EVERYONE
from palyra.gateway.routes.table import ROUTES
from palyra.ports.policy import ApiQuestion, PolicyQuestion
from palyra.ports.tokens import Role
from tests.support.policies import TAINT, question, questions, with_policies
from tests.support.role_table import RoleTable

READ, WRITE = frozenset({Capability.FS_READ}), frozenset({Capability.FS_WRITE})
EXEC, NETWORK = frozenset({Capability.PROCESS_EXEC}), frozenset({Capability.NETWORK})
READ_ONLY, IDEMPOTENT, ONCE = EffectClass.READ_ONLY, EffectClass.IDEMPOTENT, EffectClass.ONCE
DRAFTED = EffectClass.DRAFTED
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
SHELL = Runtime.SHELL
POLICY = CedarPolicy()
ALICE, BOB = Principal("user:alice"), Principal("user:bob")
WHOLE_CONTEXT = with_policies(
    'permit (principal, action == Action::"call", resource) when { {it: context}.it.skills.contains(Skill::"tidy") };'
)
PERMIT_ALL = '@id("all") permit (principal, action, resource);'
PERMITTING = with_policies(PERMIT_ALL)


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
        (question(WRITE, IDEMPOTENT, ("AGENTS.md",)), ASK, "run_outside"),
        (question(WRITE, IDEMPOTENT, (".env",)), ALLOW, "workspace_write"),
        (question(WRITE, IDEMPOTENT, ("/etc/x",), TAINT, is_inside=False), DENY, "outside_workspace"),
        (question(WRITE, IDEMPOTENT), DENY, NO_POLICY),
        (question(READ), DENY, NO_POLICY),
        (question(WRITE, ONCE, ("a",)), ASK, "once_effect"),
        (question(WRITE, ONCE, ("a",), TAINT), ASK, "tainted_once"),
        (question(effect=ONCE), ASK, "once_effect"),
        (question(effect=IDEMPOTENT), DENY, NO_POLICY),
        (question(NETWORK), ASK, "network"),
        (question(NETWORK, taint=TAINT), ASK, "tainted_act"),
        (question(NETWORK, host="example.com"), ALLOW, "fetch_read"),
        (question(NETWORK, host="example.com", taint=TAINT), ASK, "tainted_act"),
        (question(NETWORK, host="example.com", taint=TAINT, is_known_address=True), ALLOW, "fetch_read"),
        (question(NETWORK, ONCE, host="example.com", taint=TAINT, is_known_address=True), ASK, "tainted_act"),
        (question(EXEC, taint=TAINT, is_known_address=True), ASK, "tainted_act"),
        (question(NETWORK, ONCE, host="example.com"), ASK, "network"),
        (question(EXEC), ASK, "process_exec"),
        (question(EXEC, taint=TAINT), ASK, "tainted_act"),
        (question(EXEC, DRAFTED, runtime=SHELL), ALLOW, "draft"),
        (question(EXEC, DRAFTED, taint=TAINT, runtime=SHELL), ALLOW, "draft"),
        (question(EXEC, DRAFTED, runtime=Runtime.WASM), ASK, "process_exec"),
        (question(EXEC, commands=("cat",), taint=TAINT, runtime=SHELL), ASK, "tainted_act"),
        (question(EXEC, commands=("cat",), is_inside=False, runtime=SHELL), ASK, "outside_shell"),
        (question(EXEC, ONCE, commands=("rm",), runtime=SHELL), ASK, "process_exec"),
        (question(EXEC, runtime=SHELL), ASK, "process_exec"),
        (question(frozenset({Capability.MESSAGE_SEND}), ONCE), ASK, "message_send"),
        (question(frozenset({Capability.MEMORY_WRITE}), IDEMPOTENT), ASK, "memory_write"),
        (question(frozenset({Capability.SECRETS_READ})), ASK, "secrets_read"),
        (question(READ | NETWORK, paths=("a",)), ASK, "network"),
        (question(runtime=Runtime.MCP), ASK, "foreign_tool"),
        (question(READ, paths=("a",), runtime=Runtime.MCP), ASK, "foreign_tool"),
        (question(NETWORK, runtime=Runtime.MCP), ALLOW, "foreign_read"),
        (question(NETWORK, taint=TAINT, runtime=Runtime.MCP), ASK, "tainted_act"),
        (question(NETWORK, IDEMPOTENT, runtime=Runtime.MCP), ASK, "network"),
        (question(NETWORK, ONCE, runtime=Runtime.MCP), ASK, "network"),
        (question(NETWORK, runtime=Runtime.WASM), ASK, "network"),
        (question(runtime=Runtime.WASM, effect=ONCE), ASK, "foreign_tool"),
        (question(runtime=SHELL), DENY, NO_POLICY),
    ],
)
def test_verdict_and_the_rule_that_gave_it(asked: PolicyQuestion, verdict: Verdict, rule: str) -> None:
    answer = POLICY.judge(asked)
    assert (answer.verdict, answer.rule) == (verdict, rule)
    assert answer.reason.endswith(".")
    assert answer.snapshot is not None
    assert answer.snapshot.policies[0] == rule


INSTRUCTIONS = "AGENTS.md agents.md docs/Skill.MD MEMORY.md CLAUDE.md .env .github/workflows/x.yml a/hooks/pre".split()


@pytest.mark.parametrize("path", INSTRUCTIONS)
def test_instruction_file_asks_with_taint(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,), TAINT)).verdict is ASK
    assert POLICY.judge(question(WRITE, IDEMPOTENT, ("fine.txt", path), TAINT)).verdict is ASK


@pytest.mark.parametrize("path", ["AGENTS.md.txt", "my-hooks.md", "a.b/c", "skills/notes.md"])
def test_file_that_only_looks_alike_is_free(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,), TAINT)).verdict is ALLOW


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".git/config", "sub/.GIT/x", ".githooks/a", ".husky/pre-push"]
)
def test_what_git_would_run_asks_without_taint_too(path: str) -> None:
    assert POLICY.judge(question(WRITE, IDEMPOTENT, (path,))).rule == "run_outside"


def test_question_made_from_a_real_call_is_judged_by_its_real_path() -> None:
    nature = FsWrite().nature({"path": "x/../.git/./hooks/a", "content": ""}, ("/srv/ws",))
    assert POLICY.judge(question(WRITE, IDEMPOTENT, nature.paths)).rule == "run_outside"


@given(questions)
def test_whatever_sends_executes_remembers_or_leaves_never_runs_unasked(asked: PolicyQuestion) -> None:
    if POLICY.judge(asked).verdict is not ALLOW:
        return
    nature, capabilities = asked.nature, asked.spec.capabilities
    is_fetch = capabilities == NETWORK and nature.effect_class is READ_ONLY and nature.host
    is_foreign_read = capabilities == NETWORK and nature.effect_class is READ_ONLY and asked.spec.runtime is Runtime.MCP
    is_drafted = capabilities <= READ | WRITE | EXEC and nature.effect_class is DRAFTED
    is_clean_look = (is_fetch or is_foreign_read) and not asked.taint
    assert capabilities <= READ | WRITE or is_drafted or is_clean_look
    assert nature.is_in_workspace
    assert nature.effect_class is not ONCE
    assert is_foreign_read or asked.spec.runtime not in (Runtime.MCP, Runtime.WASM)


@given(questions)
def test_taint_never_makes_a_verdict_milder(asked: PolicyQuestion) -> None:
    order = [ALLOW, ASK, DENY]
    clean, tainted = POLICY.judge(replace(asked, taint=())), POLICY.judge(replace(asked, taint=TAINT))
    assert order.index(tainted.verdict) >= order.index(clean.verdict)


@given(questions)
def test_no_permit_of_the_operator_opens_what_a_bundled_policy_forbids(asked: PolicyQuestion) -> None:
    """A permit of everything leaves each bundled forbid in force, and answers with its name."""
    forbids = {entry.id for entry in bundled_policies().entries.values() if entry.effect == "forbid"}
    before, after = POLICY.judge(asked), PERMITTING.judge(asked)
    if before.rule in forbids:
        assert (after.verdict, after.rule) == (before.verdict, before.rule)
    else:
        assert after.verdict in (ALLOW, ASK)


@given(questions)
def test_members_nobody_looks_at_change_nothing(asked: PolicyQuestion) -> None:
    """The whole context fits the schema, and judging with a part of it gives the same answer as judging with all."""
    parsed = bundled_policies()
    for members in (MEMBERS, parsed.members):
        context = {**call_context(asked, 1, members), "approved": True}
        given_schema = schema() if members is MEMBERS else None
        result = cedarpy.is_authorized(
            call_request(asked, context), parsed.calls.for_tool("t.x"), entities(), given_schema
        )
        assert result.diagnostics.errors == []
        is_denied = POLICY.judge(asked).verdict is DENY
        assert result.allowed is not is_denied


@given(st.text(), st.text(), st.lists(st.text()), st.lists(st.text()), st.none() | st.floats())
@settings(max_examples=60)
def test_no_question_raises(name: str, host: str, paths: list[str], words: list[str], usd: float | None) -> None:
    asked = question(
        WRITE, IDEMPOTENT, tuple(paths), tuple(words), tool=name, host=host, budget_left_usd=usd, skills=tuple(words)
    )
    for policy in (WHOLE_CONTEXT, POLICY):
        assert isinstance(policy.judge(asked).verdict, Verdict)


@pytest.mark.parametrize("text", ["\ud800", "a" * 600_000])
def test_question_that_cannot_be_put_denies(text: str) -> None:
    answer = POLICY.judge(question(WRITE, IDEMPOTENT, (text,)))
    assert (answer.verdict, answer.rule) == (DENY, POLICY_ERROR)
    assert POLICY.judge(None).verdict is DENY  # type: ignore[arg-type]
    assert POLICY.permit(None).verdict is DENY  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError, RecursionError, OSError])
def test_shelf_that_fails_denies(error: type[Exception]) -> None:
    class Broken(BundledPolicies):
        def current(self):  # type: ignore[no-untyped-def]
            raise error("inside")

    policy = CedarPolicy(Broken())
    assert policy.judge(question()).rule == POLICY_ERROR
    assert policy.permit(ApiQuestion(principal=ALICE, role="admin", action="runs.list")).verdict is DENY
    assert error.__name__ in policy.judge(question()).reason


OVERFLOW = "context.now_ms + 9223372036854775807 > 0"


@pytest.mark.parametrize("effect", ["permit", "forbid"])
def test_policy_that_cannot_be_evaluated_denies_in_its_own_name(effect: str) -> None:
    """Cedar leaves such a policy out; a forbid left out would open what it closes."""
    policy = with_policies(
        f'@id("sum") {effect} (principal, action == Action::"call", resource) when {{ {OVERFLOW} }};'
    )
    answer = policy.judge(question())
    assert (answer.verdict, answer.rule) == (DENY, "mine/sum")
    assert "overflow" in answer.reason
    assert POLICY.judge(question()).verdict is ALLOW


def test_error_that_only_an_approval_brings_up_denies() -> None:
    text = (
        f'@id("late") forbid (principal, action == Action::"call", resource) when {{ context.approved && {OVERFLOW} }};'
    )
    assert with_policies(text).judge(question(effect=ONCE)).rule == "mine/late"


def test_own_permit_frees_what_asks_and_own_forbid_closes_what_is_free() -> None:
    text = """
    @id("tests") @says("Running the tests is free.")
    permit (principal, action == Action::"call", resource == Tool::"shell.run")
    when { context.commands == ["pytest"] };
    @id("drafts") forbid (principal, action == Action::"call", resource) when { context.folders.contains("final") };
    """
    policy = with_policies(text)
    running = question(EXEC, ONCE, commands=("pytest",), tool="shell.run", runtime=SHELL)
    assert (policy.judge(running).verdict, policy.judge(running).reason) == (ALLOW, "Running the tests is free.")
    assert policy.judge(replace(running, taint=TAINT)).rule == "tainted_act"
    written = policy.judge(question(WRITE, IDEMPOTENT, ("final/2026/a.md",)))
    assert (written.verdict, written.rule, written.reason) == (DENY, "mine/drafts", "The policy mine/drafts says so.")


def test_own_forbid_unless_approved_asks_in_its_name() -> None:
    text = '@id("look") @says("I look.") forbid (principal, action == Action::"call", resource) unless { context.approved };'
    answer = with_policies(text).judge(question(WRITE, IDEMPOTENT, ("a",)))
    assert (answer.verdict, answer.rule, answer.reason) == (ASK, "mine/look", "I look.")


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ('context.agent == Agent::"main"', question(effect=ONCE)),
        ('context.session == Session::"01JZ0000000000000000SESS01"', question(effect=ONCE)),
        ('context.channel == Channel::"http"', question(effect=ONCE)),
        ('context.skills.contains(Skill::"tidy")', question(effect=ONCE, skills=("tidy",))),
        ('context.tool like "mail.*"', question(effect=ONCE, tool="mail.send")),
        ('context.risk == "high"', question(effect=ONCE, risk=Risk.HIGH)),
        ('context.paths.contains("n/a")', question(WRITE, ONCE, ("n/a", "n/b"))),
        ('context.folders == ["n"]', question(WRITE, ONCE, ("n/a", "n/b/c"))),
        ("context has budget_left_cents && context.budget_left_cents == 149", question(effect=ONCE, budget_left_usd=1.499)),
        (f'context.arguments_sha256 == "{digest_call("t.x", {"a": 1})}"', question(effect=ONCE, arguments={"a": 1})),
        ("context.now_ms > 1700000000000", question(effect=ONCE)),
        ('principal == Principal::"user:alice"', question(effect=ONCE)),
    ],
)  # fmt: skip
def test_each_member_of_the_context_can_be_looked_at(condition: str, asked: PolicyQuestion) -> None:
    text = f'@id("it") permit (principal, action == Action::"call", resource) when {{ {condition} }};'
    assert with_policies(text).judge(asked).rule == "mine/it"
    assert with_policies(text.replace("when", "unless")).judge(asked).verdict is ASK


def test_policy_that_takes_the_context_as_a_whole_sees_all_of_it() -> None:
    assert WHOLE_CONTEXT.judge(question(effect=ONCE, skills=("tidy",))).rule == "mine/line_1"


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        ((), []),
        (("a",), []),
        (("n/a",), ["n"]),
        (("n/m/a", "n/m/b"), ["n", "n/m"]),
        (("n/m/a", "n/b"), ["n"]),
        (("n/a", "m/a"), []),
        (("n/a", "/n/a"), []),
        (("n/../../x/a",), []),
        (("n/../m/a",), ["m"]),
    ],
)
def test_folders_are_those_that_hold_every_path(paths: tuple[str, ...], folders: list[str]) -> None:
    assert folders_of(paths) == folders


def test_snapshot_names_the_deciding_policies_and_the_whole_set() -> None:
    snapshot = POLICY.judge(question()).snapshot
    other = with_policies("// nothing").judge(question()).snapshot
    assert snapshot is not None
    assert other is not None
    assert snapshot.policies == ("internal_read",)
    assert len(snapshot.sha256) == 64
    assert other.sha256 != snapshot.sha256
    both = POLICY.judge(question(EXEC, ONCE, taint=TAINT)).snapshot
    assert both is not None
    assert both.policies == ("tainted_act", "tainted_once")


def test_every_bundled_policy_has_a_name_and_a_sentence() -> None:
    for entry in bundled_policies().entries.values():
        assert not entry.id.startswith("line_")
        assert not entry.says.startswith("The policy ")
        assert entry.says.endswith(".")


ACTIONS = sorted({route.action for route in ROUTES if not route.is_signed})  # A signature needs no role.


@pytest.mark.parametrize("action", ACTIONS)
def test_bundled_policies_say_of_each_route_what_the_route_says(action: str) -> None:
    """A route whose action is not in the schema is refused for everybody, and fails here."""
    table = RoleTable(ROUTES)
    for role in Role:
        for owner in (None, ALICE, BOB, EVERYONE):
            asked = ApiQuestion(principal=ALICE, role=role.value, action=action, owner=owner)
            assert POLICY.permit(asked).verdict is table.permit(asked).verdict, (role, owner)


@pytest.mark.parametrize("role", ["", "root", "Admin", "admin\n"])
def test_unknown_role_or_act_may_nothing(role: str) -> None:
    answer = POLICY.permit(ApiQuestion(principal=ALICE, role=role, action="runs.list"))
    assert (answer.verdict, answer.rule) == (DENY, NO_POLICY)
    assert POLICY.permit(ApiQuestion(principal=ALICE, role="admin", action="runs.invent")).verdict is DENY
    assert POLICY.permit(ApiQuestion(principal=ALICE, role="admin", action="call")).verdict is DENY


def test_own_policies_open_and_close_acts() -> None:
    policy = with_policies("""
    @id("deputy") permit (principal == Principal::"user:alice", action == Action::"sessions.read",
        resource == Principal::"user:bob");
    @id("quiet") forbid (principal, action == Action::"runs.start", resource) unless { context.role in Role::"operator" };
    """)
    read = ApiQuestion(principal=ALICE, role="user", action="sessions.read", owner=BOB)
    assert policy.permit(read).rule == "mine/deputy"
    assert POLICY.permit(read).verdict is DENY
    start = ApiQuestion(principal=ALICE, role="user", action="runs.start")
    assert policy.permit(start).rule == "mine/quiet"
    assert policy.permit(replace(start, role="admin")).verdict is ALLOW


def test_many_questions_about_acts_do_not_pile_up() -> None:
    policy = CedarPolicy()
    for number in range(5000):
        asked = ApiQuestion(principal=Principal(f"user:{number}"), role="user", action="runs.list")
        assert policy.permit(asked).verdict is ALLOW
    assert len(policy.acts) <= 4096


def test_many_questions_about_calls_do_not_pile_up() -> None:
    policy = CedarPolicy()
    for number in range(5000):
        policy.judge(replace(question(), principal=Principal(f"user:{number}")))
    assert 0 < len(policy.calls) <= 4096
    kept_count = len(policy.calls)
    policy.judge(question(EXEC, taint=tuple(f"http:host-{number}" for number in range(200)), runtime=SHELL))
    assert len(policy.calls) == kept_count


@given(st.lists(questions, min_size=2, max_size=12))
@settings(max_examples=60)
def test_what_is_known_is_answered_as_if_asked_anew(asked: list[PolicyQuestion]) -> None:
    policy = CedarPolicy()
    for one in asked + asked:
        assert policy.judge(one) == CedarPolicy().judge(one)


def test_what_is_known_of_one_holds_for_no_other() -> None:
    policy = with_policies(
        '@id("bob") forbid (principal == Principal::"user:bob", action == Action::"call", resource);'
    )
    assert policy.judge(question()).verdict is ALLOW
    assert policy.judge(replace(question(), principal=BOB)).rule == "mine/bob"
    assert policy.judge(question()).verdict is ALLOW


def test_another_book_knows_nothing_of_the_one_before() -> None:
    class Changing(BundledPolicies):
        policies_now = bundled_policies()

        def current(self) -> ParsedPolicies:
            return self.policies_now

    current = Changing()
    policy = CedarPolicy(current)
    assert policy.judge(question()).verdict is ALLOW
    current.policies_now = parse_policies(
        (PolicySource("mine", '@id("no") forbid (principal, action == Action::"call", resource);'),)
    )
    assert policy.judge(question()).rule == "mine/no"
    current.policies_now = bundled_policies()
    assert policy.judge(question()).verdict is ALLOW


def test_time_in_a_policy_is_the_time_of_the_question() -> None:
    text = '@id("late") forbid (principal, action == Action::"call", resource) when { context.now_ms > 1000 };'
    now_ms = [1000, 1001, 1000]
    policy = CedarPolicy(FixedPolicies(parse_policies((PolicySource("mine", text),))), lambda: now_ms.pop(0))
    assert [policy.judge(question()).verdict for _ in range(3)] == [ALLOW, DENY, ALLOW]


@pytest.mark.parametrize("scope", ['resource == Tool::"a"', 'resource in Tool::"a"', "resource"])
def test_policy_about_one_tool_holds_for_that_tool_alone(scope: str) -> None:
    policy = with_policies(f'@id("it") forbid (principal, action == Action::"call", {scope});')
    assert policy.judge(question(tool="a")).rule == "mine/it"
    assert (policy.judge(question(tool="b")).rule == "mine/it") is (scope == "resource")
    assert policy.judge(question(tool="a")).rule == "mine/it"


def test_reasons_of_the_bundled_policies_read_well_in_a_question() -> None:
    text = (Path(cedar.__file__).parent / "defaults" / "calls.cedar").read_text("utf-8")
    said = re.findall(r'@says\("([^"]*)"\)', text)
    assert "Sending a message needs approval." in said
    assert [each for each in said if re.search(r"\basks\b", each)] == []
