"""`palyra sessions`, `runs` and `approvals` against a stand-in, and `runs replay` on a real journal."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.cli.commands.approvals import _print_approval
from palyra.cli.lookup import choose
from palyra.cli.main import app
from palyra.cli.terminal.run_tree import tree_lines
from palyra.cli.terminal.style import Style
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Verdict
from palyra.ports.journal import Append
from tests.support.homes import TestHome
from tests.support.journals import session_created
from tests.support.runs import RUN, Script
from tests.support.stand_in import APPROVAL, CHILD, GRANT, SESSION, StandIn
from tests.support.waiting import wait_until

reached = pytest.mark.usefixtures("reaching")


def palyra(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=text)


def answer(*arguments: str) -> dict[str, object]:
    result = palyra(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    members: dict[str, object] = json.loads(result.stdout)
    return members


@reached
@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["show", "cli"], ("GET", "/sessions", {})),
        (["show", SESSION], ("GET", f"/sessions/{SESSION}", {})),
        (["show", "last"], ("GET", "/sessions", {})),
        (["reset", SESSION[:8]], ("POST", f"/sessions/{SESSION}/reset", {})),
        (["reset", "cli"], ("POST", f"/sessions/{SESSION}/reset", {})),
        (["branch", "cli", "--at-seq", "3"], ("POST", f"/sessions/{SESSION}/branch", {"at_seq": 3})),
        (["label", "cli", "the garden"], ("PATCH", f"/sessions/{SESSION}", {"label": "the garden"})),
        (["label", "cli"], ("PATCH", f"/sessions/{SESSION}", {"label": None})),
        (["delete", "cli", "--yes"], ("DELETE", f"/sessions/{SESSION}", {})),
    ],
)  # fmt: skip
def test_sessions_are_reached_by_id_or_key(
    stand_in: StandIn, arguments: list[str], call: tuple[str, str, dict]
) -> None:
    assert answer("sessions", *arguments)["id"] == SESSION
    assert stand_in.calls[-1] == call
    assert SESSION in palyra("sessions", *arguments).stdout


@reached
def test_a_new_session_says_how_to_talk_in_it(stand_in: StandIn) -> None:
    told = palyra("sessions", "branch", "cli", "--at-seq", "3").stderr
    assert told == f"talk in it: palyra chat --session {SESSION}\n"


@reached
@pytest.mark.parametrize(
    ("arguments", "call", "source"),
    [
        (["taint", "cli"], ("GET", f"/sessions/{SESSION}/taint", {}), None),
        (["trust", "cli", "http:a"], ("POST", f"/sessions/{SESSION}/trust", {"source": "http:a"}), None),
        (
            ["trust", "cli", "http:a", "--reason", "ours"],
            ("POST", f"/sessions/{SESSION}/trust", {"source": "http:a", "reason": "ours"}),
            None,
        ),
        (["trust", "cli", "file:a b&c", "--undo"], ("DELETE", f"/sessions/{SESSION}/trust", {}), "file:a b&c"),
    ],
)
def test_taint_is_shown_and_vouched_for(
    stand_in: StandIn, arguments: list[str], call: tuple[str, str, dict[str, object]], source: str | None
) -> None:
    items = answer("sessions", *arguments)["items"]
    assert isinstance(items, list)
    assert (items[0]["source"], stand_in.calls[-1], stand_in.sources[-1]) == ("http:a", call, source)
    lines = palyra("sessions", *arguments).stdout.splitlines()
    assert lines[1].split() == ["http:a", "taints", "4", "http.fetch", "c1"]


@reached
def test_sessions_are_listed_plainly_in_a_pipe() -> None:
    lines = palyra("sessions", "list").stdout.splitlines()
    assert lines[0].split() == ["id", "key", "label", "agent", "last", "used", "last", "task"]
    assert lines[1].split()[:4] == [SESSION, "cli", "–", "main"]
    assert answer("sessions", "list")["items"]


@reached
def test_unknown_session_is_never_made(stand_in: StandIn) -> None:
    result = palyra("sessions", "reset", "nobody")
    assert (result.exit_code, result.stderr.split(":")[1].strip()) == (1, "session_unknown")
    assert not stand_in.sent(f"/sessions/{SESSION}/reset")


@reached
def test_delete_asks_first(stand_in: StandIn) -> None:
    asked = palyra("sessions", "delete", "cli", text="n\n")
    assert (asked.exit_code, f"Erase session {SESSION}" in asked.stderr) == (1, True)
    assert {method for method, _, _ in stand_in.calls} == {"GET"}


@reached
def test_tape_and_timeline_tell_every_event(stand_in: StandIn) -> None:
    assert palyra("run", "fail").exit_code == 1
    run = stand_in.run_ids()[0]
    tape = palyra("sessions", "tape", "cli").stdout.splitlines()
    assert [line.split()[-1] for line in tape[:1]] == ["http"]
    assert len(tape) == len(stand_in.tape)
    shown = palyra("runs", "show", run).stdout
    assert "run.failed          provider_error: the provider is down" in shown
    assert answer("runs", "show", run)["run"] == stand_in.run(run)
    assert run in palyra("runs", "list", "--session", "cli").stdout
    assert answer("sessions", "tape", "cli", "--after", "2")["events"] == stand_in.tape[2:]


@reached
def test_show_tells_each_objective_and_what_was_found_of_it(stand_in: StandIn) -> None:
    palyra("run", "hello")
    run = stand_in.run_ids()[0]
    stand_in.objectives = [
        {"objective": "file:a\x1b[2J exists", "state": "met", "note": ""},
        {"objective": "It is short.", "state": "unchecked", "note": "No reviewer could check it: budget."},
    ]
    lines = [" ".join(line.split()) for line in palyra("runs", "show", run).stdout.splitlines()]
    assert "objective 1 met: file:a\\x1b[2J exists" in lines
    assert "objective 2 unchecked: It is short. (No reviewer could check it: budget.)" in lines


@reached
def test_tree_of_a_run_shows_its_children_and_nothing_that_harms_a_terminal(stand_in: StandIn) -> None:
    run = palyra("run", "fail", "--no-wait").stdout.strip()
    wait_until(lambda: stand_in.run(run)["state"] == "failed")
    lines = palyra("runs", "tree", run).stdout.splitlines()
    assert lines[0] == f"{run}  failed (provider_error)  main  10 in, 5 out, $0.0010"
    assert lines[1] == "│  look at it"
    assert lines[2].startswith(f"└─ {CHILD}  failed")
    assert "\x1b" not in lines[3]
    assert lines[3].startswith("      a part")
    assert lines[4] == "2 runs, 20 in, 10 out, $0.0020"
    assert answer("runs", "tree", run)["runs_count"] == 2
    assert CHILD in palyra("runs", "show", run).stdout
    assert answer("runs", "show", run)["children"] == [CHILD]


def test_tree_on_a_terminal_has_colours_by_state() -> None:
    nodes = [
        {"id": f"R{state}", "state": state, "agent": "main", "task": "t"} for state in ("done", "failed", "waiting")
    ]
    root = {"id": "R", "state": "in_progress", "agent": "main", "task": "t", "children": nodes}
    text = "\n".join(tree_lines({"root": root, "runs_count": 4, "is_cut": True}, Style(True)))
    for code, state in (("36", "in_progress"), ("32", "done"), ("31", "failed"), ("33", "waiting")):
        assert f"\x1b[{code}m{state}\x1b[0m" in text
    assert "and more" in text


@reached
def test_run_is_cancelled(stand_in: StandIn) -> None:
    run = palyra("run", "slow", "--no-wait").stdout.strip()
    assert palyra("runs", "cancel", run).stdout == f"{run} is cancelled\n"
    assert palyra("runs", "show", "01JZ0000000000000000NOTHER").exit_code == 1


@reached
@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (["allow", APPROVAL], {"decision": "allow", "scope": "once"}),
        (["allow", APPROVAL, "--scope", "session", "--option", "1"], {"decision": "allow", "scope": "session", "option": 1}),
        (["allow", APPROVAL, "--scope", "timeboxed", "--ttl", "30m"], {"decision": "allow", "scope": "timeboxed", "ttl_s": 1800}),
        (["deny", APPROVAL, "--reason", "no", "--end-run"], {"decision": "deny", "end_run": True, "reason": "no"}),
        (["deny", APPROVAL, "--scope", "session"], {"decision": "deny", "scope": "session"}),
        (["deny", APPROVAL, "--scope", "timeboxed", "--ttl", "2h"], {"decision": "deny", "scope": "timeboxed", "ttl_s": 7200}),
        (["settle", APPROVAL, "give_up"], {"decision": "give_up"}),
    ],
)  # fmt: skip
def test_approvals_are_answered(stand_in: StandIn, arguments: list[str], body: dict[str, object]) -> None:
    palyra("run", "approval", "--no-wait")
    while not stand_in.tape or stand_in.tape[-1]["type"] != "run.waiting":
        pass
    assert APPROVAL in palyra("approvals", "list").stdout
    assert "--option 1  session: commands that begin with make" in palyra("approvals", "show", APPROVAL).stdout
    assert palyra("approvals", *arguments).exit_code == 0
    assert stand_in.sent(f"/approvals/{APPROVAL}")[-1] == body
    again = palyra("approvals", "deny", APPROVAL)
    assert (again.exit_code, again.stderr) == (1, "error: approval_decided: it is decided already\n")


def test_a_draft_is_shown_with_without_and_a_decided_question_with_no_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    once: JsonObject = {"scope": "once", "text": "apply exactly these changes"}
    record: JsonObject = {"id": APPROVAL, "kind": "draft", "status": "pending", "options": [once]}
    _print_approval(record)
    asked = capsys.readouterr().out
    assert "--option 0  once: apply exactly these changes" in asked
    assert "--without PATH" in asked
    _print_approval({**record, "status": "allowed"})
    decided = capsys.readouterr().out
    assert "--option" not in decided
    assert "--without" not in decided


@reached
@pytest.mark.parametrize("named", ["last", APPROVAL[:3], APPROVAL[:8].lower()])
def test_approvals_are_named_by_their_beginning_or_as_the_last(stand_in: StandIn, named: str) -> None:
    palyra("run", "approval", "--no-wait")
    while not stand_in.tape or stand_in.tape[-1]["type"] != "run.waiting":
        pass
    assert palyra("approvals", "deny", named).stdout == f"{APPROVAL} is denied\n"
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "deny"}]
    assert "nothing_waits" in palyra("approvals", "allow", "last").stderr, "an answered question is not the last one"


@reached
def test_nothing_is_answered_where_nothing_or_nothing_such_waits() -> None:
    assert "nothing_waits" in palyra("approvals", "allow", "last").stderr
    assert "id_unknown" in palyra("approvals", "allow", "ZZ").stderr


def test_beginning_of_several_ids_names_none_of_them() -> None:
    items: list[dict[str, object]] = [{"id": "0AB"}, {"id": "0AC"}, {"id": "1X"}]
    assert choose(items, "1x") == "1X"
    assert choose(items, "last") == "1X"
    assert choose(items, "2") is choose(items, "") is choose([], "last") is None
    with pytest.raises(Invalid, match="0AB, 0AC"):
        choose(items, "0a")


@reached
def test_ttl_goes_with_its_scope_only() -> None:
    assert palyra("approvals", "allow", APPROVAL, "--ttl", "30m").exit_code == 2
    assert "duration_invalid" in palyra("approvals", "allow", APPROVAL, "--scope", "timeboxed", "--ttl", "x").stderr
    assert "at most 30d" in palyra("approvals", "deny", APPROVAL, "--scope", "timeboxed", "--ttl", "31d").stderr


@reached
def test_grants_are_listed_and_revoked(stand_in: StandIn) -> None:
    listed = palyra("approvals", "grants", "list").stdout
    assert "command begins make" in listed
    assert "refusal  shell.run" in listed
    assert answer("approvals", "grants", "revoke", GRANT)["ok"] is True
    assert stand_in.calls[-1][:2] == ("DELETE", f"/grants/{GRANT}")


@reached
def test_nothing_is_said_plainly() -> None:
    assert palyra("approvals", "list").stdout == "nothing waits for an answer\n"
    assert palyra("runs", "list").stdout == "no runs; palyra run TEXT starts one\n"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    """A home with one run that was decided by this release."""
    home = TestHome(tmp_path_factory.mktemp("replay") / "home")
    script = Script().begin().propose(("fs.read", {"path": "a"})).judge(1, Verdict.ALLOW).finish(1).answer("it is a")

    async def record(journal: SqliteJournal) -> None:
        await journal.commit([Append(home.first, 0, (session_created(), *script.tape))])

    home.run(record)
    return home


def replay(home: TestHome, *arguments: str) -> Result:
    return palyra("--home", str(home.home.root), "runs", "replay", *arguments)


def test_replay_decides_as_it_was_recorded(recorded: TestHome) -> None:
    result = replay(recorded, RUN, "--json")
    members = json.loads(result.stdout)
    assert (result.exit_code, members["ok"], members["state"]) == (0, True, "done")
    assert members["decisions_count"] > 3
    assert "first difference      none" in replay(recorded, RUN).stdout


def test_replay_refuses_an_altered_tape_and_an_unknown_run(recorded: TestHome, tmp_path: Path) -> None:
    spoiled = recorded.copy_to(tmp_path / "home")
    condition = spoiled.event(spoiled.first, 4)
    spoiled.spoil(f"UPDATE events SET at_ms = at_ms + 1 WHERE {condition}")
    assert "tape_damaged" in replay(spoiled, RUN).stderr
    assert "run_unknown" in replay(recorded, "01JZ0000000000000000RVN999").stderr


def test_replay_names_the_first_difference(tmp_path: Path) -> None:
    home = TestHome(tmp_path / "home")
    tape = Script().begin().propose(("fs.read", {"path": "a"})).judge(1, Verdict.ALLOW).tape
    cut = [draft for draft in tape if draft.data.TYPE != "tool.started"]

    async def record(journal: SqliteJournal) -> None:
        await journal.commit([Append(home.first, 0, (session_created(), *cut))])

    home.run(record)
    result = replay(home, RUN, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["difference"]["expected"] == "tool.started"
