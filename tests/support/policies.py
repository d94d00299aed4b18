"""Questions for policies: made from given parts, or any question at all.

Does not own: the expected verdicts.
"""

from pathlib import Path

from hypothesis import strategies as st

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import FixedPolicies
from palyra.adapters.policy.policy_set import PolicySource, parse_policies
from palyra.core.events.tool import EffectClass, ParallelClass, Risk, Verdict
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.tools import CallNature, Capability, Runtime, ToolSpec
from palyra.ports.policy import ModelQuestion, PolicyAnswer, PolicyQuestion

TAINT = ("external",)


class PermitsModels:
    """The part of a stand-in for Policy that lets every model be used and no sandbox reach the network."""

    def permit_model(self, question: ModelQuestion) -> PolicyAnswer:
        return PolicyAnswer(verdict=Verdict.ALLOW, rule="any", reason="")

    def permits_network(self, question: PolicyQuestion) -> bool:
        return False


def question(
    capabilities: frozenset[Capability] = frozenset(),
    effect: EffectClass = EffectClass.READ_ONLY,
    paths: tuple[str, ...] = (),
    taint: tuple[str, ...] = (),
    **more: object,
) -> PolicyQuestion:
    """`more` takes runtime, is_inside, host, commands, tool, arguments, budget_left_usd, risk, skills."""
    runtime, risk = more.get("runtime", Runtime.INTERNAL), more.get("risk", Risk.MEDIUM)
    assert isinstance(runtime, Runtime)
    assert isinstance(risk, Risk)
    return PolicyQuestion(
        principal=Principal("user:alice"),
        agent="main",
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        channel="http",
        skills=more.get("skills", ()),  # type: ignore[arg-type]
        budget_left_usd=more.get("budget_left_usd"),  # type: ignore[arg-type]
        is_known_address=bool(more.get("is_known_address")),
        spec=ToolSpec(
            name=str(more.get("tool", "t.x")),
            description="A tool.",
            input_schema={},
            capabilities=capabilities,
            effect_class=effect,
            runtime=runtime,
            risk=risk,
        ),
        arguments=more.get("arguments", {}),  # type: ignore[arg-type]
        nature=CallNature(
            effect_class=effect,
            parallel_class=ParallelClass.NEVER,
            paths=paths,
            host=more.get("host"),  # type: ignore[arg-type]
            is_in_workspace=bool(more.get("is_inside", True)),
            commands=more.get("commands", ()),  # type: ignore[arg-type]
        ),
        taint=taint,
    )


def with_policies(text: str, name: str = "mine") -> CedarPolicy:
    """The bundled policies and these."""
    return CedarPolicy(FixedPolicies(parse_policies((PolicySource(name, text),))))


def put_policy(root: Path, text: str, name: str = "mine.cedar") -> Path:
    """Writes a file of policies into a home's folder, as an editor does."""
    root.mkdir(exist_ok=True)
    fresh = root / f"{name}.new"
    fresh.write_text(text)
    return fresh.replace(root / name)


questions = st.builds(
    question,
    capabilities=st.frozensets(st.sampled_from(Capability)),
    effect=st.sampled_from(EffectClass),
    paths=st.lists(st.sampled_from(["a", "n/b", ".env", "AGENTS.md", ".git/x", "/etc/x", ""]), max_size=2).map(tuple),
    taint=st.sampled_from([(), TAINT, ("web:a", "mcp:b")]),
    runtime=st.sampled_from(Runtime),
    is_inside=st.booleans(),
    host=st.sampled_from([None, "example.com"]),
    commands=st.sampled_from([(), ("cat",), ("cat", "rm")]),
)
