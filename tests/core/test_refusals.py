"""Refusals: a no that lasts covers the shape that was offered, whatever the taint, and is never taken for a grant."""

import pytest
from msgspec.structs import replace

from palyra.core.command_words import command_words
from palyra.core.errors import Invalid
from palyra.core.events import codec
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    ApprovalResolved,
    ApprovalStatus,
    Constraint,
    Decision,
    GrantOption,
    Refusal,
    Scope,
)
from palyra.core.grants import TTL_S_DEFAULT, TTL_S_MAX, GrantCase, GrantTerms, make_refusal, refuses
from palyra.core.ids import ApprovalId, Principal, derive_grant_id
from palyra.core.offers import make_options
from tests.support.traits import shape_of

NOW_MS = 1_750_000_000_000
ALICE = Principal("user:alice")
APPROVAL = ApprovalId("01JZ0000000000000000APPR01")
WRITE: JsonObject = {"path": "notes/a.md", "content": "hello"}
ONCE, EXACT, FOLDER, FOLDER_ALL_SESSIONS = range(4)


def terms(option: GrantOption, ttl_s: int | None = None) -> GrantTerms:
    return GrantTerms(
        approval_id=APPROVAL,
        tool="fs.write",
        option=option,
        taint=(),
        principal=ALICE,
        agent="main",
        now_ms=NOW_MS,
        ttl_s=ttl_s,
    )


def refusal(index: int, ttl_s: int | None = None) -> Refusal:
    made = make_refusal(terms(make_options("fs.write", WRITE, shape_of("fs.write"))[index], ttl_s))
    assert made is not None
    return made


def case(arguments: JsonObject = WRITE, **change: object) -> GrantCase:
    made = GrantCase(tool="fs.write", arguments=arguments, taint=(), principal=ALICE, agent="main", now_ms=NOW_MS)
    return replace(made, **change)


def test_a_no_for_once_refuses_nothing_more() -> None:
    assert make_refusal(terms(make_options("fs.write", WRITE)[ONCE])) is None


def test_exact_refusal_covers_the_same_call_only() -> None:
    assert refuses(refusal(EXACT), case())
    assert not refuses(refusal(EXACT), case({**WRITE, "content": "other"}))


def test_folder_refusal_covers_the_folder_and_no_other() -> None:
    assert refuses(refusal(FOLDER), case({"path": "notes/b/c.md", "content": ""}))
    assert not refuses(refusal(FOLDER), case({"path": "other/a.md", "content": ""}))


def refusal_of(tool: str, arguments: JsonObject, **shape: object) -> Refusal:
    made = make_refusal(terms(make_options(tool, arguments, shape_of(tool, **shape))[FOLDER]))
    assert made is not None
    return replace(made, tool=tool)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "git push"},
        {"command": "git status && git push origin main"},
        {"command": "true; git   push"},
        {"command": "git push --receive-pack=/tmp/x origin"},
        {"command": 'git push "$REMOTE"'},
        {"command": "git push", "timeout_s": 5},
    ],
)
def test_refusal_of_a_command_holds_whatever_stands_around_it(arguments: JsonObject) -> None:
    """Otherwise a model gets past a no with one more word, and a policy that allows then runs it."""
    made = refusal_of("shell.run", {"command": "git push"}, command_words=(("git", "push"),))
    words = command_words(str(arguments["command"]))
    assert refuses(made, case(arguments, tool="shell.run", command_words=words))


@pytest.mark.parametrize("command", ["git pull", "git status", "git push-all", "legit push", "git fetch; ls push"])
def test_refusal_of_a_command_covers_no_other(command: str) -> None:
    made = refusal_of("shell.run", {"command": "git push"}, command_words=(("git", "push"),))
    asked = case({"command": command}, tool="shell.run", command_words=command_words(command))
    assert not refuses(made, asked)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://evil.example/b", "timeout_s": 3},
        {"url": "https://evil.example/ü"},
        {"url": "https://me@evil.example/"},
        {"url": "HTTPS://EVIL.example:443/x", "method": "get"},
    ],
)
def test_refusal_of_a_host_holds_for_every_way_to_write_it(arguments: JsonObject) -> None:
    made = refusal_of("http.fetch", {"url": "https://evil.example/a"})
    assert refuses(made, case(arguments, tool="http.fetch"))
    assert not refuses(made, case({"url": "https://good.example/"}, tool="http.fetch"))


def test_refusal_of_a_folder_covers_sensitive_files_in_it_and_calls_with_more_arguments() -> None:
    assert refuses(refusal(FOLDER), case({"path": "notes/.env", "content": ""}))
    assert refuses(refusal(FOLDER), case({"path": "x/../notes/a", "content": "", "mode": "append"}))


def test_refusal_covers_calls_with_more_taint_and_with_secrets() -> None:
    assert refuses(refusal(FOLDER), case(taint=("http:evil.example",), has_secrets=True))


@pytest.mark.parametrize("change", [{"tool": "fs.patch"}, {"principal": Principal("user:bob")}, {"agent": "other"}])
def test_refusal_covers_no_other_tool_person_or_agent(change: dict[str, object]) -> None:
    assert not refuses(refusal(EXACT), replace(case(), **change))


def test_what_an_agent_was_refused_is_refused_to_those_it_delegates_to() -> None:
    assert refuses(refusal(EXACT), case(agent="helper", agents_above=("main",)))


def test_timeboxed_refusal_ends_and_has_a_default_length() -> None:
    made = refusal(FOLDER_ALL_SESSIONS)
    assert made.expires_at_ms == NOW_MS + TTL_S_DEFAULT * 1000
    assert refuses(made, case(now_ms=made.expires_at_ms - 1))
    assert not refuses(made, case(now_ms=made.expires_at_ms))
    assert refusal(EXACT).expires_at_ms is None
    with pytest.raises(Invalid, match="ttl_invalid"):
        refusal(FOLDER_ALL_SESSIONS, TTL_S_MAX + 1)


def test_term_of_an_unknown_kind_refuses_nothing() -> None:
    strange = Constraint(argument="path", operator="resembles", value="notes")
    assert not refuses(replace(refusal(EXACT), constraints=(strange,)), case())


def test_answer_without_a_refusal_is_encoded_as_before_refusals_existed() -> None:
    answer = ApprovalResolved(
        approval_id=APPROVAL, status=ApprovalStatus.DENIED, decision=Decision.DENY, decided_by=ALICE, digest="d"
    )
    old = b'{"approval_id":"%b","decided_by":"user:alice","decision":"deny","digest":"d","status":"denied"}' % (
        APPROVAL.encode()
    )
    assert codec.encode_data(answer) == old
    assert codec.decode_data(ApprovalResolved.TYPE, old) == answer
    refused = replace(answer, scope=Scope.SESSION, refusal=refusal(EXACT))
    assert codec.decode_data(ApprovalResolved.TYPE, codec.encode_data(refused)) == refused
    assert refused.refusal is not None
    assert refused.refusal.refusal_id == derive_grant_id(APPROVAL)
