"""Judges calls, actions and the use of models by the Cedar policies in force.

Does not own: the policies' texts (policy_set, folder).
A call is judged with context.approved = false; if that allows it, it runs. Otherwise it is judged again as if approved;
if that allows it, it asks. Otherwise it is refused.
Invariants (L6): Cedar skips a policy that it cannot evaluate, and skipping a forbid would open what it closes. Here any
such error refuses, in that policy's name. So does every error of our own and a question that does not fit. Nothing is
raised.
"""

import re
import time
from collections.abc import Callable, Hashable
from typing import Protocol

import cedarpy

from palyra.adapters.policy.context import Request, act_request, call_context, call_request, model_request
from palyra.adapters.policy.policy_set import NETWORK, ParsedPolicies, bundled_policies, entities, nothing
from palyra.core.events.tool import PolicySnapshot, Verdict
from palyra.ports.policy import ApiQuestion, ModelQuestion, PolicyAnswer, PolicyQuestion

NO_POLICY = "no_policy"
POLICY_ERROR = "policy_error"
ANSWERS_MAX = 4096
CONTEXT_LENGTH_MAX = 1024  # A longer context is not cached, so the cached answers take a few MB at most.

_ERRING = re.compile(r"policy `([^`]+)`")
_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class CurrentPolicies(Protocol):
    """Where the policy set in force comes from."""

    def current(self) -> ParsedPolicies: ...

    def state(self) -> str:
        """Returns `ok`, or what is wrong with the operator's policies."""
        ...


class BundledPolicies:
    """Gives the policies that come with Palyra, and no others."""

    def current(self) -> ParsedPolicies:
        return bundled_policies()

    def state(self) -> str:
        return "ok"


class _Outcome:
    """Cedar's answer to one request."""

    __slots__ = ("errors", "is_allowed", "reasons")

    def __init__(
        self, parsed: ParsedPolicies, policies: cedarpy.PolicySet, request: Request, known: cedarpy.Entities
    ) -> None:
        result = cedarpy.is_authorized(request, policies, known)
        self.is_allowed = result.allowed
        self.errors: list[str] = result.diagnostics.errors
        self.reasons = tuple(sorted(result.diagnostics.reasons, key=parsed.rank.__getitem__))


class VerdictCache:
    """Caches the answers of one policy set. They repeat often, and depend only on the question and the set."""

    def __init__(self) -> None:
        self._parsed: ParsedPolicies | None = None
        self._answers: dict[Hashable, PolicyAnswer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def of(self, parsed: ParsedPolicies, question: Hashable) -> PolicyAnswer | None:
        return self._answers.get(question) if parsed is self._parsed else None

    def keep(self, parsed: ParsedPolicies, question: Hashable, answer: PolicyAnswer) -> PolicyAnswer:
        if parsed is not self._parsed or len(self._answers) >= ANSWERS_MAX:
            self._parsed, self._answers = parsed, {}
        self._answers[question] = answer
        return answer


class CedarPolicy:
    """Implements the ports Policy and AccessPolicy."""

    def __init__(self, policies: CurrentPolicies | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._policies = policies or BundledPolicies()
        self._now_ms = now_ms or _system_now_ms
        self.acts = VerdictCache()
        self.calls = VerdictCache()
        self.models = VerdictCache()

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        parsed = None
        try:
            parsed = self._policies.current()
            return self._judge(parsed, question)
        except _ERRORS as cause:
            return _failure(parsed, f"The call could not be judged ({type(cause).__name__}), so it is refused.")

    def permits_network(self, question: PolicyQuestion) -> bool:
        try:
            parsed = self._policies.current()
            if not any(entry.is_network and entry.effect == "permit" for entry in parsed.entries.values()):
                return False
            context = {**call_context(question, self._now_ms(), parsed.members), "approved": True}
            outcome = _Outcome(parsed, parsed.network, call_request(question, context, NETWORK), nothing())
        except _ERRORS:
            return False
        return outcome.is_allowed and not outcome.errors

    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        parsed = None
        try:
            parsed = self._policies.current()
            return self.acts.of(parsed, question) or self.acts.keep(parsed, question, _permit(parsed, question))
        except _ERRORS as cause:
            return _failure(parsed, f"The act could not be judged ({type(cause).__name__}), so it is refused.")

    def permit_model(self, question: ModelQuestion) -> PolicyAnswer:
        parsed = None
        try:
            parsed = self._policies.current()
            return self._permit_model(parsed, question)
        except _ERRORS as cause:
            reason = f"The use of the model could not be judged ({type(cause).__name__}), so it is refused."
            return _failure(parsed, reason)

    def state(self) -> str:
        return self._policies.state()

    def _permit_model(self, parsed: ParsedPolicies, question: ModelQuestion) -> PolicyAnswer:
        asked = model_request(question, self._now_ms(), parsed.model_members)
        key = (question.principal, question.model, str(asked["context"]))
        known = self.models.of(parsed, key)
        if known is not None:
            return known
        answer = _permit_model(parsed, question, asked)
        return self.models.keep(parsed, key, answer) if len(key[-1]) <= CONTEXT_LENGTH_MAX else answer

    def _judge(self, parsed: ParsedPolicies, question: PolicyQuestion) -> PolicyAnswer:
        context = call_context(question, self._now_ms(), parsed.members)
        asked = call_request(question, {**context, "approved": False})
        key = (question.principal, question.spec.name, str(asked["context"]))
        known = self.calls.of(parsed, key)
        if known is not None:
            return known
        answer = _judge(parsed, question, context, asked)
        return self.calls.keep(parsed, key, answer) if len(key[-1]) <= CONTEXT_LENGTH_MAX else answer


def _judge(
    parsed: ParsedPolicies, question: PolicyQuestion, context: dict[str, object], asked: Request
) -> PolicyAnswer:
    policies = parsed.calls.for_tool(question.spec.name)
    plain = _Outcome(parsed, policies, asked, nothing())
    if plain.errors:
        return _error(parsed, plain)
    if plain.is_allowed:
        return _answer(parsed, Verdict.ALLOW, plain.reasons)
    approved = _Outcome(parsed, policies, call_request(question, {**context, "approved": True}), nothing())
    if approved.errors:
        return _error(parsed, approved)
    if approved.is_allowed:
        # The policies that held the call back tell more than those that would let it through.
        return _answer(parsed, Verdict.ASK, plain.reasons or approved.reasons)
    return _answer(parsed, Verdict.DENY, approved.reasons)


def _permit(parsed: ParsedPolicies, question: ApiQuestion) -> PolicyAnswer:
    outcome = _Outcome(parsed, parsed.acts, act_request(question), entities())
    if outcome.errors:
        return _error(parsed, outcome)
    if outcome.is_allowed:
        return _answer(parsed, Verdict.ALLOW, outcome.reasons)
    if outcome.reasons:
        return _answer(parsed, Verdict.DENY, outcome.reasons)
    whose = "" if question.owner in (None, question.principal) else " upon what is another's"
    reason = f"No policy permits {question.action}{whose} in the role {question.role}."
    return _named(parsed, Verdict.DENY, NO_POLICY, reason)


def _permit_model(parsed: ParsedPolicies, question: ModelQuestion, asked: Request) -> PolicyAnswer:
    outcome = _Outcome(parsed, parsed.models, asked, nothing())
    if outcome.errors:
        return _error(parsed, outcome)
    if outcome.is_allowed or outcome.reasons:
        return _answer(parsed, Verdict.ALLOW if outcome.is_allowed else Verdict.DENY, outcome.reasons)
    return _named(parsed, Verdict.DENY, NO_POLICY, f"No policy permits the model {question.model}, so it is refused.")


def _answer(parsed: ParsedPolicies, verdict: Verdict, policies: tuple[str, ...]) -> PolicyAnswer:
    if not policies:
        return _named(parsed, Verdict.DENY, NO_POLICY, "No policy permits this call, so it is refused.")
    first = parsed.entries[policies[0]]
    snapshot = PolicySnapshot(sha256=parsed.sha256, policies=policies)
    return PolicyAnswer(verdict=verdict, rule=first.id, reason=first.says, snapshot=snapshot)


def _error(parsed: ParsedPolicies, outcome: _Outcome) -> PolicyAnswer:
    """Refuses in the name of the policy that could not be evaluated. Cedar names that policy only in its message."""
    named = [match.group(1) for match in map(_ERRING.search, outcome.errors) if match]
    rule = next((name for name in named if name in parsed.entries), POLICY_ERROR)
    what = "The question" if rule == POLICY_ERROR else f"The policy {rule}"
    reason = f"{what} could not be evaluated ({outcome.errors[0][:200]}), so the call is refused."
    return _named(parsed, Verdict.DENY, rule, reason)


def _named(parsed: ParsedPolicies, verdict: Verdict, rule: str, reason: str) -> PolicyAnswer:
    snapshot = PolicySnapshot(sha256=parsed.sha256, policies=(rule,))
    return PolicyAnswer(verdict=verdict, rule=rule, reason=reason, snapshot=snapshot)


def _failure(parsed: ParsedPolicies | None, reason: str) -> PolicyAnswer:
    """Refuses because our own code failed, perhaps before there was a policy set."""
    snapshot = None if parsed is None else PolicySnapshot(sha256=parsed.sha256, policies=(POLICY_ERROR,))
    return PolicyAnswer(verdict=Verdict.DENY, rule=POLICY_ERROR, reason=reason, snapshot=snapshot)


def _system_now_ms() -> int:
    return time.time_ns() // 1_000_000
