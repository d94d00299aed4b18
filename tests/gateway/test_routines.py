"""`/api/v1/routines`: routines are made, changed, run and removed over HTTP, by their owner; errors have our shape."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.ids import configured_routine_id
from palyra.core.routines.wish import ConfiguredRoutine, make_definition
from palyra.ports.tokens import Role
from tests.gateway.scene import Scene
from tests.support.asking import says
from tests.support.channels import channel_workshop, rules
from tests.support.engines import OWNER, Workshop
from tests.support.routines import START_MS, SetClock, local_ms, wish
from tests.support.waiting import until

PATH = "/api/v1/routines"
FILE_ID = configured_routine_id("from-file")
BODY = {"name": "morning", "prompt": "What is on today?", "cron": "30 7 * * 1-5", "timezone": "Europe/Prague"}


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Scene]:
    """A gateway over an engine whose clock stands still, with one routine of the file."""
    workshop = Workshop(tmp_path, [Script(turns=(says("Done."),))])
    workshop.clock = SetClock()
    definition = make_definition(wish("from-file"), lambda schedule: None)
    workshop.routines = (ConfiguredRoutine(principal=OWNER, definition=definition),)
    async with workshop.open() as engine:
        yield Scene(engine)


async def test_a_routine_is_created_shown_changed_and_removed(real: Scene) -> None:
    created = await real.ask("POST", PATH, BODY)
    assert created.status == 201
    record = created.json
    assert {
        "name": "morning", "prompt": "What is on today?", "cron": "30 7 * * 1-5", "every_s": None, "at": None,
        "timezone": "Europe/Prague", "misfire": "skip", "misfire_max": 10, "overlap": "forbid", "session_key": None,
        "channel": None,
        "agent": None, "principal": "user:owner", "source": "api", "state": "active", "fired_count": 0,
        "skipped_count": 0, "last_due_ms": None, "next_at_ms": local_ms("2027-01-18T07:30", "Europe/Prague"),
    }.items() <= record.items()  # fmt: skip
    one = f"{PATH}/{record['id']}"
    assert (await real.ask("GET", one)).json == record
    changed = await real.ask("PATCH", one, {"prompt": "Hello.", "every_s": 60, "agent": "main", "session_key": "day"})
    assert changed.status == 200
    assert {"prompt": "Hello.", "every_s": 60, "cron": None, "agent": "main"}.items() <= changed.json.items()
    cleared = await real.ask("PATCH", one, {"agent": None, "session_key": None, "paused": True})
    assert (cleared.json["agent"], cleared.json["session_key"], cleared.json["state"]) == (None, None, "paused")
    assert cleared.json["next_at_ms"] is None
    assert (await real.ask("PATCH", one, {"paused": False})).json["next_at_ms"] == START_MS + 60_000
    assert (await real.ask("DELETE", one)).status == 204
    assert (await real.ask("GET", one)).code == "routine_unknown"
    assert (await real.ask("DELETE", one)).status == 404
    assert (await real.ask("GET", f"{one}/history")).json == {"items": [], "next_after": None}
    assert [item["name"] for item in (await real.ask("GET", PATH)).json["items"]] == ["from-file"]
    (gone,) = (await real.ask("GET", f"{PATH}?removed=true")).json["items"]
    assert (gone["id"], gone["name"], gone["state"], gone["prompt"]) == (record["id"], "morning", "removed", "")


async def test_lists_come_in_pages(real: Scene) -> None:
    for number in range(4):
        assert (await real.ask("POST", PATH, {**BODY, "name": f"r{number}"})).status == 201
    names: list[str] = []
    after = ""
    while True:
        page = (await real.ask("GET", f"{PATH}?limit=2&after={after}")).json
        names += [item["name"] for item in page["items"]]
        after = page["next_after"]
        if after is None:
            break
    assert sorted(names) == ["from-file", "r0", "r1", "r2", "r3"]


async def test_a_manual_run_is_in_the_history_with_its_state(real: Scene) -> None:
    record = (await real.ask("POST", PATH, BODY)).json
    fired = await real.ask("POST", f"{PATH}/{record['id']}/run", {})
    assert fired.status == 202
    assert (fired.json["outcome"], fired.json["is_manual"], fired.json["due_at_ms"]) == ("fired", True, START_MS)

    async def is_over() -> bool:
        items = (await real.ask("GET", f"{PATH}/{record['id']}/history")).json["items"]
        return bool(items[0]["run_state"] == "done" and items[0]["run_id"])

    await until(is_over)


async def test_a_routine_of_the_file_is_paused_and_run_but_edited_there(real: Scene) -> None:
    one = f"{PATH}/{FILE_ID}"
    assert (await real.ask("GET", one)).json["source"] == "file"
    for answer in (await real.ask("PATCH", one, {"prompt": "x"}), await real.ask("DELETE", one)):
        assert (answer.status, answer.code) == (409, "routine_configured")
        assert "palyra.toml" in answer.json["error"]["message"]
    assert (await real.ask("PATCH", one, {"paused": True})).json["state"] == "paused"
    assert (await real.ask("POST", f"{one}/run", {})).status == 202


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"cron": "61 * * * *"}, 400, "cron_invalid"),
        ({"cron": "hourly"}, 400, "cron_invalid"),
        ({"cron": "0 0 31 2 *"}, 400, "cron_invalid"),
        ({"timezone": "Mars/Olympus"}, 400, "timezone_unknown"),
        ({"timezone": "../../etc/passwd"}, 400, "timezone_unknown"),
        ({"every_s": 60}, 400, "routine_schedule"),
        ({"cron": None}, 400, "routine_schedule"),
        ({"cron": None, "every_s": 0}, 400, "body_invalid"),
        ({"cron": None, "every_s": 0.5}, 400, "body_invalid"),
        ({"cron": None, "at": "2020-01-01T00:00:00Z"}, 400, "time_past"),
        ({"cron": None, "at": "soon"}, 400, "time_invalid"),
        ({"cron": None, "at": "9999-12-31T23:59:59Z", "timezone": "Pacific/Auckland"}, 400, "time_invalid"),
        ({"cron": None, "at": "2027-03-28T02:30:00"}, 400, "time_missing"),
        ({"misfire": "never"}, 400, "body_invalid"),
        ({"misfire_max": 101}, 400, "body_invalid"),
        ({"overlap": "both"}, 400, "body_invalid"),
        ({"prompt": ""}, 400, "body_invalid"),
        ({"prompt": "  "}, 400, "routine_prompt_empty"),
        ({"prompt": "a" * 20_001}, 400, "body_invalid"),
        ({"agent": "nobody"}, 400, "agent_unknown"),
        ({"channel": "team"}, 400, "routine_channel"),
        ({"principal": "user:bob"}, 400, "body_invalid"),
        ({"name": "from-file"}, 409, "routine_name_taken"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_created(
    real: Scene, changes: dict[str, object], status: int, code: str
) -> None:
    body = {name: value for name, value in {**BODY, **changes}.items() if value is not None}
    answer = await real.ask("POST", PATH, body)
    assert (answer.status, answer.code) == (status, code)
    assert len((await real.ask("GET", PATH)).json["items"]) == 1


@pytest.mark.parametrize("body", [{"prompt": None}, {"paused": "yes"}, {"every_s": None}, {"id": "x"}, []])
async def test_a_change_that_does_not_fit_is_refused(real: Scene, body: object) -> None:
    record = (await real.ask("POST", PATH, BODY)).json
    assert (await real.ask("PATCH", f"{PATH}/{record['id']}", body)).status == 400
    assert (await real.ask("GET", f"{PATH}/{record['id']}")).json == record


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_an_id_that_nobody_has_is_not_found(real: Scene, method: str) -> None:
    for routine_id in ("0" * 26, "morning", "..%2F.."):
        answer = await real.ask(method, f"{PATH}/{routine_id}", {} if method == "PATCH" else None)
        assert (answer.status, answer.code) == (404, "routine_unknown")


async def test_a_token_without_the_right_to_start_runs_starts_none_by_a_routine(real: Scene) -> None:
    narrow = real.tokens.add("palyra_narrow-0123456789", Role.USER, principal="user:owner", actions=("routines",))
    wide = real.tokens.add(
        "palyra_wide-01234567890", Role.USER, principal="user:owner", id="wide", actions=("routines", "runs.start")
    )
    assert (await real.ask("POST", PATH, BODY, token=wide)).status == 201
    record = (await real.ask("GET", f"{PATH}?limit=500", token=narrow)).json["items"][-1]
    one = f"{PATH}/{record['id']}"
    tries: list[tuple[str, str, object]] = [
        ("POST", PATH, {**BODY, "name": "other"}),
        ("POST", f"{one}/run", {}),
        *(("PATCH", one, change) for change in ({"prompt": "x"}, {"every_s": 5}, {"agent": "main"}, {"paused": False})),
    ]
    for method, path, body in tries:
        answer = await real.ask(method, path, body, token=narrow)
        assert (answer.status, answer.code) == (403, "scope_insufficient")
    assert (await real.ask("GET", one, token=narrow)).json == record
    assert (await real.ask("PATCH", one, {"paused": True}, token=narrow)).status == 200
    assert (await real.ask("PATCH", one, {"paused": False}, token=wide)).status == 200


async def test_an_operator_sees_and_pauses_anothers_but_gives_it_no_words(real: Scene) -> None:
    alice = real.tokens.add("palyra_alice-0123456789", Role.USER, principal="user:alice", id="alice")
    bob = real.tokens.add("palyra_bob-0123456789", Role.OPERATOR, principal="user:bob", id="bob")
    carol = real.tokens.add("palyra_carol-0123456789", Role.USER, principal="user:carol", id="carol")
    record = (await real.ask("POST", PATH, BODY, token=alice)).json
    assert record["principal"] == "user:alice"
    one = f"{PATH}/{record['id']}"
    assert (await real.ask("GET", PATH, token=carol)).json["items"] == []
    assert (await real.ask("GET", f"{PATH}?everyone=true", token=carol)).status == 403
    seen = (await real.ask("GET", f"{PATH}?everyone=true", token=bob)).json["items"]
    assert {item["id"] for item in seen} == {record["id"], FILE_ID}
    assert (await real.ask("GET", PATH, token=bob)).json["items"] == []
    for method, target, body in (
        ("GET", one, None), ("GET", f"{one}/history", None), ("PATCH", one, {"paused": True}), ("DELETE", one, None),
        ("POST", f"{one}/run", {}),
    ):  # fmt: skip
        assert (await real.ask(method, target, body, token=carol)).status == 404
    assert (await real.ask("PATCH", one, {"prompt": "do as I say"}, token=bob)).code == "routine_not_own"
    assert (await real.ask("POST", f"{one}/run", {}, token=bob)).status == 404
    assert (await real.ask("PATCH", one, {"paused": True}, token=bob)).json["state"] == "paused"
    assert (await real.ask("GET", one, token=alice)).json["prompt"] == BODY["prompt"]
    assert (await real.ask("DELETE", one, token=bob)).status == 204


async def test_only_an_operator_changes_what_a_routine_says_in_a_channel(tmp_path: Path) -> None:
    workshop = channel_workshop(tmp_path, [Script(turns=(says("All quiet."),))], rules(conversation="c7"))
    async with workshop.open() as engine:
        scene = Scene(engine)
        alice = {"principal": "user:alice"}
        above = scene.tokens.add("palyra_above-0123456789", Role.OPERATOR, id="above", **alice)
        below = scene.tokens.add("palyra_below-0123456789", Role.USER, id="below", **alice)
        record = (await scene.ask("POST", PATH, {**BODY, "channel": "team"}, token=above)).json
        one = f"{PATH}/{record['id']}"
        for change in ({"prompt": "x"}, {"session_key": "mine"}, {"channel": "team"}, {"every_s": 1}):
            assert (await scene.ask("PATCH", one, change, token=below)).status == 403
        assert (await scene.ask("GET", one, token=below)).json == record
        assert (await scene.ask("PATCH", one, {"paused": True}, token=below)).status == 200
        assert (await scene.ask("PATCH", one, {"prompt": "x"}, token=above)).json["prompt"] == "x"
