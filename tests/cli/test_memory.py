"""`palyra memory` against a real daemon: what people add, find, change, forget, export and import."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from palyra.app import Home, count_memory_items
from palyra.cli.doctor_checks import FindingMark, examine
from palyra.cli.main import app
from tests.support.daemons import Daemon
from tests.support.sqlite import change_from_outside

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is done."\n'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("memory") / "home", SCRIPT) as made:
        yield made


@pytest.fixture(autouse=True)
def reaching(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_HOME", str(daemon.home))
    monkeypatch.setenv("PALYRA_SERVER__HTTP", f"127.0.0.1:{daemon.port}")
    monkeypatch.setenv("NO_COLOR", "1")


def memory(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["memory", *arguments], **options)


def answer(*arguments: str) -> dict[str, Any]:
    result = memory(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    members: dict[str, Any] = json.loads(result.stdout)
    return members


def test_a_time_to_live_is_written_as_every_other_duration() -> None:
    assert memory("add", "The release is frozen until Friday.", "--ttl", "3d").output.startswith("remembered 01")
    frozen = answer("list")["items"][-1]
    assert frozen["expires_at_ms"] - frozen["created_at_ms"] == 3 * 86_400_000
    wrong = memory("add", "The release is late.", "--ttl", "soon")
    assert (wrong.exit_code, "such as 30m" in wrong.stderr) == (1, True)
    assert memory("forget", frozen["id"]).exit_code == 0


def test_an_item_is_added_found_edited_and_forgotten() -> None:
    assert memory("add", "The staging server is called heron.").output.startswith("remembered 01")
    assert memory("add", "The staging server is called heron.").output.startswith("known already: 01")
    assert "heron" in memory("search", "staging server").output
    (found,) = answer("search", "staging server", "-k", "1")["items"]
    edited = memory("edit", found["id"], "The staging server is called egret.", "--kind", "decision")
    assert edited.output.startswith("changed; its id is now 01")
    assert "superseded by" in memory("list", "--history").output
    (now,) = answer("list", "--kind", "decision")["items"]
    assert now["content"] == "The staging server is called egret."
    assert memory("forget", now["id"]).output == "forgot 1 item\n"
    assert answer("list", "--history")["items"] == []
    assert "nothing is remembered" in memory("list").output
    gone = memory("forget", now["id"])
    assert (gone.exit_code, "memory_unknown" in gone.stderr) == (1, True)


def test_an_item_named_twice_is_forgotten_once() -> None:
    memory("add", "The gate is painted green.")
    forgotten = memory("forget", "last", "last")
    assert (forgotten.exit_code, forgotten.output) == (0, "forgot 1 item\n")


def test_an_empty_text_and_a_line_without_content_are_told_in_words(tmp_path: Path) -> None:
    empty = memory("add", " ")
    assert (empty.exit_code, "say what to remember" in empty.stderr) == (2, True)
    file = tmp_path / "items.jsonl"
    file.write_text('{"content":"The gate is painted red."}\n{"contnt":"b"}\n')
    refused = memory("import", str(file))
    assert refused.exit_code == 1
    assert "line 2 is no item as palyra memory export writes it: it has no content" in refused.stderr
    assert "painted red" not in memory("list").output


def test_an_item_is_named_by_last_or_by_the_beginning_of_its_id() -> None:
    first, second = (memory("add", f"The {name} is blue.").output.split()[1] for name in ("door", "gate"))
    assert answer("forget", "last")["forgotten"] == [second]
    assert memory("edit", first[:25], "The door is red.").exit_code == 0
    assert memory("forget", "last").exit_code == 0
    unknown = memory("forget", "last").stderr
    assert "nothing is remembered; palyra memory list" in unknown


@pytest.mark.parametrize("scope", ["session", "channel"])
def test_a_scope_that_needs_an_id_names_the_option(scope: str) -> None:
    wrong = memory("add", "The door is red.", "--scope", scope)
    assert wrong.exit_code == 2
    assert f"--scope {scope} needs --scope-id" in wrong.stderr


def test_a_secret_is_refused_and_the_exit_code_says_so() -> None:
    refused = memory("add", "the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    assert (refused.exit_code, refused.output) == (1, "refused (secret); palyra secrets set NAME keeps a secret\n")
    assert memory("edit", "01ARZ3NDEKTSV4RRFFQ69G5FAV").exit_code == 2


def test_what_is_exported_can_be_imported_again(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    lines: list[dict[str, Any]] = [
        {"content": "The boat is called Tern.", "metadata": {"a": [1]}, "source": {"conversation": "c", "position": 1}},
        {"content": "I prefer tea.", "kind": "preference", "trust": "external", "taint": ["http:evil.example"]},
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "\n")
    assert memory("import", str(file)).output == "2 stored\n"
    assert memory("import", str(file)).output == "2 duplicate\n"
    exported = memory("export").stdout
    assert [json.loads(line)["content"] for line in exported.splitlines()] == [line["content"] for line in lines]
    for item in answer("list")["items"]:
        memory("forget", item["id"])
    again = memory("import", "-", input=exported)
    assert again.output == "2 stored\n"
    assert [item["trust"] for item in answer("list")["items"]] == ["operator", "external"]
    assert answer("export", "-o", str(tmp_path / "out.jsonl"))["items_count"] == 2
    assert (tmp_path / "out.jsonl").read_text() == exported
    file.write_text("no json\n")
    broken = memory("import", str(file))
    assert (broken.exit_code, "line 1 is no item" in broken.stderr) == (1, True)
    assert memory("import", str(tmp_path / "none")).exit_code == 1


def test_doctor_says_whether_index_and_items_agree(daemon: Daemon) -> None:
    memory("add", "The gull sits on the roof.")
    found = [each for each in examine(Home(daemon.home), None) if each.check == "memory"]
    assert [each.mark for each in found] == [FindingMark.OK]
    daemon.stop()
    change_from_outside(
        daemon.home / "journal.db", "DELETE FROM memory_words WHERE rowid = (SELECT max(number) FROM memory_items)"
    )
    (finding,) = [each for each in examine(Home(daemon.home), None) if each.check == "memory"]
    assert (finding.mark, finding.what) == (FindingMark.FAIL, "the index and the items differ in 1 places")
    rebuilt = CliRunner().invoke(app, ["projections", "rebuild"])
    assert rebuilt.exit_code == 0, rebuilt.output
    assert count_memory_items(Home(daemon.home))[1] == 0
