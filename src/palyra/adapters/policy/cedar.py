"""Judges calls and actions by the Cedar policies in force.

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

from palyra.adapters.policy.context import Request, act_request, call_context, call_request
from palyra.adapters.policy.policy_set import NETWORK, PolicyBook, bundled_book, entities, nothing
from palyra.core.events.tool import PolicySnapshot, Verdict
from palyra.ports.policy import ApiQuestion, PolicyAnswer, PolicyQuestion

NO_POLICY = "no_policy"
POLICY_ERROR = "policy_error"
ANSWERS_KEPT_MAX = 4096
CONTEXT_LENGTH_MAX = 1024  # A longer context is not cached, so the cached answers take a few MB at most.

_ERRING = re.compile(r"policy `([^`]+)`")
_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Shelf(Protocol):
    """Where the policy set in force comes from."""

    def book(self) -> PolicyBook: ...

    def state(self) -> str:
        """Returns `ok`, or what is wrong with the operator's policies."""
        ...


class BundledShelf:
    """Gives the policies that come with Palyra, and no others."""

    def book(self) -> PolicyBook:
        return bundled_book()

    def state(self) -> str:
        return "ok"


class _Outcome:
    """Cedar's answer to one request."""

    __slots__ = ("errors", "is_allowed", "reasons")

    def __init__(
        self, book: PolicyBook, policies: cedarpy.PolicySet, request: Request, known: cedarpy.Entities
    ) -> None:
        result = cedarpy.is_authorized(request, policies, known)
        self.is_allowed = result.allowed
        self.errors: list[str] = result.diagnostics.errors
        self.reasons = tuple(sorted(result.diagnostics.reasons, key=book.rank.__getitem__))


class VerdictCache:
    """Caches the answers of one policy set. They repeat often, and depend only on the question and the set."""

    def __init__(self) -> None:
        self._book: PolicyBook | None = None
        self._kept: dict[Hashable, PolicyAnswer] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, book: PolicyBook, question: Hashable) -> PolicyAnswer | None:
        return self._kept.get(question) if book is self._book else None

    def keep(self, book: PolicyBook, question: Hashable, answer: PolicyAnswer) -> PolicyAnswer:
        if book is not self._book or len(self._kept) >= ANSWERS_KEPT_MAX:
            self._book, self._kept = book, {}
        self._kept[question] = answer
        return answer


class CedarPolicy:
    """Implements the ports Policy and AccessPolicy."""

    def __init__(self, shelf: Shelf | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._shelf = shelf or BundledShelf()
        self._now_ms = now_ms or _system_now_ms
        self.acts = VerdictCache()
        self.calls = VerdictCache()

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        book = None
        try:
            book = self._shelf.book()
            return self._judge(book, question)
        except _ERRORS as cause:
            return _failure(book, f"The call could not be judged ({type(cause).__name__}), so it is refused.")

    def permits_network(self, question: PolicyQuestion) -> bool:
        try:
            book = self._shelf.book()
            if not any(entry.is_network and entry.effect == "permit" for entry in book.entries.values()):
                return False
            context = {**call_context(question, self._now_ms(), book.members), "approved": True}
            outcome = _Outcome(book, book.network, call_request(question, context, NETWORK), nothing())
        except _ERRORS:
            return False
        return outcome.is_allowed and not outcome.errors

    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        book = None
        try:
            book = self._shelf.book()
            return self.acts.of(book, question) or self.acts.keep(book, question, _permit(book, question))
        except _ERRORS as cause:
            return _failure(book, f"The act could not be judged ({type(cause).__name__}), so it is refused.")

    def state(self) -> str:
        return self._shelf.state()

    def _judge(self, book: PolicyBook, question: PolicyQuestion) -> PolicyAnswer:
        context = call_context(question, self._now_ms(), book.members)
        asked = call_request(question, {**context, "approved": False})
        key = (question.principal, question.spec.name, str(asked["context"]))
        known = self.calls.of(book, key)
        if known is not None:
            return known
        answer = _judge(book, question, context, asked)
        return self.calls.keep(book, key, answer) if len(key[-1]) <= CONTEXT_LENGTH_MAX else answer


def _judge(book: PolicyBook, question: PolicyQuestion, context: dict[str, object], asked: Request) -> PolicyAnswer:
    policies = book.calls.for_tool(question.spec.name)
    plain = _Outcome(book, policies, asked, nothing())
    if plain.errors:
        return _error(book, plain)
    if plain.is_allowed:
        return _answer(book, Verdict.ALLOW, plain.reasons)
    approved = _Outcome(book, policies, call_request(question, {**context, "approved": True}), nothing())
    if approved.errors:
        return _error(book, approved)
    if approved.is_allowed:
        # The policies that held the call back tell more than those that would let it through.
        return _answer(book, Verdict.ASK, plain.reasons or approved.reasons)
    return _answer(book, Verdict.DENY, approved.reasons)


def _permit(book: PolicyBook, question: ApiQuestion) -> PolicyAnswer:
    outcome = _Outcome(book, book.acts, act_request(question), entities())
    if outcome.errors:
        return _error(book, outcome)
    if outcome.is_allowed:
        return _answer(book, Verdict.ALLOW, outcome.reasons)
    if outcome.reasons:
        return _answer(book, Verdict.DENY, outcome.reasons)
    whose = "" if question.owner in (None, question.principal) else " upon what is another's"
    reason = f"No policy permits {question.action}{whose} in the role {question.role}."
    return _named(book, Verdict.DENY, NO_POLICY, reason)


def _answer(book: PolicyBook, verdict: Verdict, policies: tuple[str, ...]) -> PolicyAnswer:
    if not policies:
        return _named(book, Verdict.DENY, NO_POLICY, "No policy permits this call, so it is refused.")
    first = book.entries[policies[0]]
    snapshot = PolicySnapshot(sha256=book.sha256, policies=policies)
    return PolicyAnswer(verdict=verdict, rule=first.id, reason=first.says, snapshot=snapshot)


def _error(book: PolicyBook, outcome: _Outcome) -> PolicyAnswer:
    """Refuses in the name of the policy that could not be evaluated. Cedar names that policy only in its message."""
    named = [match.group(1) for match in map(_ERRING.search, outcome.errors) if match]
    rule = next((name for name in named if name in book.entries), POLICY_ERROR)
    what = "The question" if rule == POLICY_ERROR else f"The policy {rule}"
    reason = f"{what} could not be evaluated ({outcome.errors[0][:200]}), so the call is refused."
    return _named(book, Verdict.DENY, rule, reason)


def _named(book: PolicyBook, verdict: Verdict, rule: str, reason: str) -> PolicyAnswer:
    snapshot = PolicySnapshot(sha256=book.sha256, policies=(rule,))
    return PolicyAnswer(verdict=verdict, rule=rule, reason=reason, snapshot=snapshot)


def _failure(book: PolicyBook | None, reason: str) -> PolicyAnswer:
    """Refuses because our own code failed, perhaps before there was a policy set."""
    snapshot = None if book is None else PolicySnapshot(sha256=book.sha256, policies=(POLICY_ERROR,))
    return PolicyAnswer(verdict=Verdict.DENY, rule=POLICY_ERROR, reason=reason, snapshot=snapshot)


def _system_now_ms() -> int:
    return time.time_ns() // 1_000_000
