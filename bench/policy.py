"""How long judging a call takes. Run: `python -m bench.policy`.

µs of CPU per decision, the best of several passes: a call that is free (Cedar is asked once) and one that asks (twice), with
5 and 60 policies besides what each needs, with parsed handles and with texts; each question is new, until the last lines. The
ratio is to a bare `is_authorized` of cedarpy with the same request and handles: what our own part costs. The limit is for a
call that is free, at 60 policies.
"""

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cedarpy
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from palyra.adapters.policy.cedar import CedarPolicy  # noqa: E402
from palyra.adapters.policy.context import call_context, call_request  # noqa: E402
from palyra.adapters.policy.folder import FixedPolicies  # noqa: E402
from palyra.adapters.policy.policy_set import ParsedPolicies, PolicySource, bundled_policies, nothing, parse_policies  # noqa: E402
from palyra.core.events.tool import EffectClass, ParallelClass, Verdict  # noqa: E402
from palyra.core.ids import Principal, SessionId, StreamId  # noqa: E402
from palyra.core.tools import CallNature, Capability, ToolSpec  # noqa: E402
from palyra.ports.policy import ApiQuestion, PolicyQuestion  # noqa: E402

LIMIT_US = 150.0
PASSES = 25
COUNT = 200
# Of the kinds people write: one tool, a folder, a host, programs, who.
FORMS = (
    '@id("p{0}") permit (principal, action == Action::"call", resource == Tool::"mcp.x.t{0}") '
    "when {{ context.taint.isEmpty() }};",
    '@id("p{0}") forbid (principal, action == Action::"call", resource) when {{ context.paths.contains("private/{0}") }};',
    '@id("p{0}") permit (principal, action == Action::"call", resource == Tool::"http.fetch") '
    'when {{ context has host && context.host like "*.example{0}.com" }};',
    '@id("p{0}") permit (principal, action == Action::"call", resource == Tool::"shell.run") '
    'when {{ context.in_workspace && ["make{0}", "pytest"].containsAll(context.commands) }};',
    '@id("p{0}") forbid (principal == Principal::"user:guest{0}", action == Action::"call", resource) '
    'when {{ context.risk == "high" }};',
)


def main() -> None:
    free = _question(EffectClass.IDEMPOTENT, frozenset({Capability.FS_WRITE}), ("notes/2026/plan.md",))
    asking = _question(EffectClass.ONCE, frozenset({Capability.MESSAGE_SEND}), ())
    print(f"{'µs of CPU per decision':46} {'free':>8} {'asks':>8} {'bare':>8} {'ratio':>6}")
    last = 0.0
    for count in (5, 60):
        text = "\n".join(FORMS[number % len(FORMS)].format(number) for number in range(count))
        last = _print_policies(f"{count} policies alone, handles", _alone(count, text), free, asking)
        _print_texts(f"{count} policies alone, texts", text, free)
    own = "\n".join(FORMS[number % len(FORMS)].format(number) for number in range(60 - len(bundled_policies().entries)))
    bundled = _print_policies(
        "60 policies, the bundled ones among them", parse_policies((PolicySource("own", own),)), free, asking
    )
    policy = CedarPolicy()
    act = ApiQuestion(principal=Principal("user:alice"), role="user", action="runs.list")
    print(f"{'a call that looks as one before':46} {_cost_us(lambda: policy.judge(free)):8.2f}")
    print(f"{'an act upon the daemon, asked again':46} {_cost_us(lambda: policy.permit(act)):8.2f}")
    started = time.process_time()
    parse_policies((PolicySource("own", own),))
    print(f"{'reading and checking such a set':46} {(time.process_time() - started) * 1e6:8.0f}")
    worst = max(last, bundled)
    print(f"\nlimit {LIMIT_US:.0f} µs at 60 policies: {'kept' if worst <= LIMIT_US else 'NOT kept'} ({worst:.0f})")


def _alone(count: int, text: str) -> ParsedPolicies:
    """Those policies and two that decide, nothing bundled."""
    deciding = """
    permit (principal, action == Action::"call", resource) when { context.capabilities == ["fs_write"] };
    permit (principal, action == Action::"call", resource) when { context.approved };
    """
    parsed = parse_policies((PolicySource("own", text + deciding),), ())
    assert len(parsed.entries) == count + 2
    return parsed


def _print_policies(name: str, parsed: ParsedPolicies, free: PolicyQuestion, asking: PolicyQuestion) -> float:
    policy = CedarPolicy(FixedPolicies(parsed))
    assert policy.judge(free).verdict is Verdict.ALLOW
    assert policy.judge(asking).verdict is Verdict.ASK
    request = call_request(free, {**call_context(free, 0, parsed.members), "approved": False})
    handle = parsed.calls.for_tool(free.spec.name)
    bare = _cost_us(lambda: cedarpy.is_authorized(request, handle, nothing()))
    cost, twice = _cost_us(_anew(policy, free)), _cost_us(_anew(policy, asking))
    print(f"{name:46} {cost:8.1f} {twice:8.1f} {bare:8.1f} {cost / bare:6.2f}")
    return cost


def _anew(policy: CedarPolicy, question: PolicyQuestion) -> Callable[[], object]:
    """Each time by somebody else: what was asked before would be known."""
    numbers = itertools.count()
    return lambda: policy.judge(replace(question, principal=Principal(f"user:{next(numbers)}")))


def _print_texts(name: str, text: str, free: PolicyQuestion) -> None:
    """As cedarpy is used most: every text is parsed at every question."""
    request = call_request(free, {**call_context(free, 0, bundled_policies().members), "approved": False})
    cost = _cost_us(lambda: cedarpy.is_authorized(request, text, "[]"), 20)
    print(f"{name:46} {cost:8.1f}")


def _cost_us(act: Callable[[], object], count: int = COUNT) -> float:
    best = float("inf")
    for _ in range(PASSES):
        started = time.process_time()
        for _ in range(count):
            act()
        best = min(best, time.process_time() - started)
    return best / count * 1e6


def _question(effect: EffectClass, capabilities: frozenset[Capability], paths: tuple[str, ...]) -> PolicyQuestion:
    return PolicyQuestion(
        principal=Principal("user:alice"),
        agent="main",
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        channel="http",
        spec=ToolSpec(
            name="t.x", description="A tool.", input_schema={}, capabilities=capabilities, effect_class=effect
        ),
        arguments={},
        nature=CallNature(effect_class=effect, parallel_class=ParallelClass.NEVER, paths=paths),
        taint=(),
    )


if __name__ == "__main__":
    main()
