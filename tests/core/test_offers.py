"""What is offered by the shape of a call: commands, hosts, tools. Each offer covers its own call and nothing beyond its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.shell.nature import nature_of
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Constraint, Grant, GrantOption, Risk, Scope
from palyra.core.grants import GrantCase, covers, meets, origin_of
from palyra.core.ids import GrantId, Principal
from palyra.core.offers import CallShape, join_options, make_options
from tests.support.strategies import json_objects
from tests.support.traits import shape_of

ALICE = Principal("user:alice")
Words = tuple[tuple[str, ...], ...]


def wide(tool: str, arguments: JsonObject, **shape: object) -> GrantOption | None:
    """The option beyond the exact call, if one is offered."""
    options = make_options(tool, arguments, shape_of(tool, **shape))
    return options[2] if len(options) == 4 else None


def is_covered(option: GrantOption | None, tool: str, arguments: JsonObject, words: Words = ()) -> bool:
    assert option is not None
    grant = Grant(
        grant_id=GrantId("g"),
        tool=tool,
        scope=Scope.SESSION,
        constraints=option.constraints,
        taint=(),
        principal=ALICE,
        agent="main",
    )
    case = GrantCase(
        tool=tool, arguments=arguments, taint=(), principal=ALICE, agent="main", now_ms=0, command_words=words
    )
    return covers(grant, case)


def shell(*words: tuple[str, ...]) -> GrantOption | None:
    return wide("shell.run", {"command": " && ".join(" ".join(each) for each in words)}, command_words=words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((("git", "status"),), "“git status”"),
        ((("git", "diff"), ("git", "diff", "a")), "“git diff”"),
        ((("npm", "run", "test"),), "“npm run test”"),
        ((("pytest", "tests"),), "“pytest”"),
    ],
)
def test_commands_that_share_their_telling_words_are_offered_together(words: Words, said: str) -> None:
    option = shell(*words)
    assert option is not None
    assert (
        option.text
        == f"shell.run of commands that begin with {said}, followed by plain words and no options, in this session"
    )


@pytest.mark.parametrize(
    "words",
    [
        (("git", "status"), ("git", "diff")),
        (("git", "status"), ("rm", "x")),
        (("git",),),
        (("git", "-c", "core.pager=sh", "status"),),
        (("rm", "-rf", "x"),),
        (("curl", "https://a.example"),),
        (("bash", "-c", "true"),),
        (("npm", "run"),),
        (("npm", "run", "--", "x"),),
        (("/usr/bin/git", "status"),),
        ((),),
        (),
    ],
)
def test_other_commands_are_offered_exactly_alone(words: Words) -> None:
    assert shell(*words) is None


@pytest.mark.parametrize(
    ("words", "is_so"),
    [
        ((("git", "status"), ("git", "status", "x")), True),
        ((("git", "status", "-s"),), False),
        ((("git", "status", "--output=x"),), False),
        ((("git", "status", "../x"),), False),
        ((("git", "status", "a/b"),), False),
        ((("git", "status", "~"),), False),
        ((("git", "status", "A=b"),), False),
        ((("git", "status", "ext::sh"),), False),
        ((("git", "status", "--", "x"),), False),
        ((("git", "status", "-"),), False),
        ((("git", "status", ""),), False),
        ((("git", "status"), ("rm", "x")), False),
        ((("git", "statusx"),), False),
        ((("git", "-C", "/", "status"),), False),
        ((("git",),), False),
        ((), False),  # Not all words are known: a redirection, a substitution, text that does not parse.
    ],
)
def test_command_grant_covers_only_texts_whose_every_command_begins_so(words: Words, is_so: bool) -> None:
    assert is_covered(shell(("git", "status")), "shell.run", {"command": "?"}, words) is is_so


def test_command_grant_leaves_the_other_arguments_as_they_were() -> None:
    arguments: JsonObject = {"command": "git status", "cwd": "a"}
    option = wide("shell.run", arguments, command_words=(("git", "status"),))
    words = (("git", "status"),)
    assert is_covered(option, "shell.run", {"command": "git status x", "cwd": "a"}, words)
    others: list[JsonObject] = [{**arguments, "cwd": "b"}, {"command": "git status"}, {**arguments, "background": True}]
    for other in others:
        assert not is_covered(option, "shell.run", other, words)


def test_host_is_offered_with_its_method() -> None:
    option = wide("http.fetch", {"url": "https://API.example/v1?x=1", "method": "post", "body": "b"})
    assert option is not None
    assert option.text.startswith("http.fetch POST to https://api.example, whatever path, headers and body")
    assert is_covered(option, "http.fetch", {"url": "https://api.example:443/other", "method": "POST"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://api.example/x", "method": "DELETE"},
        {"url": "https://api.example/x"},
        {"url": "http://api.example/x", "method": "POST"},
        {"url": "https://api.example:444/x", "method": "POST"},
        {"url": "https://api.example.evil/x", "method": "POST"},
        {"url": "https://api.example@evil.example/x", "method": "POST"},
        {"url": "https://api.example\\@evil.example/x", "method": "POST"},
        {"url": "https://api.example\t.evil.example/x", "method": "POST"},
        {"url": " https://api.example/x", "method": "POST"},
        {"url": "https://api.example./x", "method": "POST"},
        {"url": "https://api.example/x\n", "method": "POST"},
        {"url": "https://api.example/x", "method": "POST", "proxy": "evil"},
        {"url": ["https://api.example/x"], "method": "POST"},
        {"url": "https://api.example/x", "method": None},
        {"method": "POST"},
    ],
)
def test_host_grant_covers_no_other_method_host_port_or_spelling(arguments: JsonObject) -> None:
    option = wide("http.fetch", {"url": "https://api.example/v1", "method": "POST"})
    assert not is_covered(option, "http.fetch", arguments)


def test_fetch_without_a_method_is_a_get() -> None:
    option = wide("http.fetch", {"url": "http://a.example:8080"})
    assert option is not None
    assert "GET to http://a.example:8080," in option.text
    assert is_covered(option, "http.fetch", {"url": "http://a.example:8080/x", "method": "get"})


@given(st.text(alphabet="htps:/.@\\?#[]%a1\u017f\u212a\u00a0\t\n", max_size=20))
def test_no_spelling_of_an_address_hides_its_host(tail: str) -> None:
    origin = origin_of(f"https://a.example{tail}")
    if origin is not None and not origin.startswith("https://a.example:"):
        host = origin.removeprefix("https://")
        assert host.startswith("a.example")
        assert tail.lower().startswith(host.removeprefix("a.example"))
        assert (tail[len(host) - len("a.example") :] or "/")[0] in "/?#:"


@pytest.mark.parametrize("risk", [Risk.LOW, Risk.MEDIUM])
def test_mild_tool_of_a_server_is_offered_with_any_arguments(risk: Risk) -> None:
    option = wide("mcp.git.log", {"n": 1}, risk=risk)
    assert option is not None
    assert option.text == "mcp.git.log with any arguments, in this session"
    assert is_covered(option, "mcp.git.log", {"other": "x"})


@pytest.mark.parametrize("shape", [{"risk": Risk.HIGH}, {"risk": Risk.CRITICAL}, {"risk": Risk.LOW, "taint": ("web",)}])
def test_risky_or_tainted_tool_of_a_server_is_not(shape: dict[str, object]) -> None:
    assert wide("mcp.git.push", {"n": 1}, **shape) is None


def test_no_shape_at_all_covers_nothing() -> None:
    assert not meets((), {"a": 1}, ())


@pytest.mark.parametrize("operator", ["among", "command_prefix", "only"])
def test_terms_that_cannot_be_read_cover_nothing(operator: str) -> None:
    broken = (Constraint(argument="a", operator=operator, value="no JSON"),)
    assert not meets(broken, {"a": 1}, (("git", "status"),))


KINDS = st.sampled_from(["fs.write", "shell.run", "http.fetch", "mcp.a.b", "t.x"])
WORDS = st.lists(
    st.lists(st.sampled_from(["git", "status", "rm", "-x", "npm", "run"]), max_size=3).map(tuple), max_size=3
)


@given(KINDS, json_objects, WORDS.map(tuple))
def test_every_offer_covers_the_call_it_was_made_for(tool: str, arguments: JsonObject, words: Words) -> None:
    shown = {name: value for name, value in arguments.items() if value is not None}
    for option in make_options(tool, shown, shape_of(tool, command_words=words, risk=Risk.LOW)):
        assert is_covered(option, tool, shown, words)


def test_joined_offers_are_those_that_cover_every_call() -> None:
    calls: list[tuple[JsonObject, CallShape]] = [({"path": f"n/{name}"}, CallShape()) for name in "ab"]
    offered = [make_options("fs.write", arguments, shape_of("fs.write")) for arguments, _ in calls]
    joined = join_options("fs.write", offered, calls)
    assert [(option.scope, option.text) for option in joined] == [
        (Scope.ONCE, "these 2 calls of fs.write and no others"),
        (Scope.SESSION, "fs.write in n/, in this session"),
        (Scope.TIMEBOXED, "fs.write in n/, for a time, in all sessions"),
    ]


@pytest.mark.parametrize("path", ["AGENTS.md", "docs/claude.md", ".env"])
def test_a_folder_that_hides_delicate_files_is_not_offered_for_one(path: str) -> None:
    options = make_options("fs.write", {"path": path, "content": "x"}, shape_of("fs.write"))
    assert all(constraint.operator != "under" for option in options for constraint in option.constraints)


def test_a_plain_folder_opens_no_delicate_file_below_it() -> None:
    wide = make_options("fs.write", {"path": "notes.md", "content": "x"}, shape_of("fs.write"))[2]
    assert meets(wide.constraints, {"path": "other.md", "content": "y"}, ())
    for path in (".git/hooks/post-commit", "AGENTS.md", "a/../.git/config", "sub/.env"):
        assert not meets(wide.constraints, {"path": path, "content": "y"}, ())


@pytest.mark.parametrize(
    "option",
    [
        "--prune",
        "--upload-pack=evil",
        "ext::sh",
        "--output=x",
        "-ox",
        "-C",
        "--git-dir=x",
        "--work-tree",
        "-c",
        "a=b",
        "/x",
    ],
)
def test_no_kind_of_command_is_offered_where_more_than_plain_words_follow(option: str) -> None:
    shape = shape_of("shell.run", command_words=(("git", "fetch", option),))
    options = make_options("shell.run", {"command": f"git fetch {option}"}, shape)
    assert not any("begin with" in each.text for each in options)


@given(st.text(alphabet="ab-=/:.~@+,%^ _", max_size=8))
def test_a_kind_of_command_never_covers_a_word_that_could_be_an_option_or_a_path(word: str) -> None:
    option = shell(("git", "fetch"))
    if is_covered(option, "shell.run", {"command": "?"}, (("git", "fetch", "origin", word),)):
        assert word[0].isalnum()
        assert not set(word) & set("=/:~ ,+%^")


def test_a_command_on_the_real_folder_gets_no_grant_by_its_first_words() -> None:
    for argument in ("direct", "background"):
        arguments: JsonObject = {"command": "git fetch origin", argument: True}
        nature = nature_of(arguments, ("/w",))
        option = wide("shell.run", arguments, command_words=nature.command_words)
        assert option is None
        # A grant that was given earlier covers no such command any more.
        begins = Constraint(argument="command", operator="command_prefix", value='["git","fetch"]')
        assert not meets((begins,), arguments, nature.command_words)
    with_network = nature_of({"command": "git fetch origin", "network": True}, ("/w",))
    assert with_network.command_words == (("git", "fetch", "origin"),)
