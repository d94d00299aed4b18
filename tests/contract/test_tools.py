"""What every tool of the catalog must do. A tool is done when this passes whole."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from palyra.adapters.schema import JsonSchemaCheck
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.adapters.tools.fs_read import OUTPUT_BYTES_MAX
from palyra.adapters.tools.time_now import TimeNow
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome
from palyra.core.tools import Capability
from palyra.ports.tools import Tool
from tests.support.sites import standing_site
from tests.support.strategies import json_objects
from tests.support.tool_calls import ARTIFACT, context, make_catalog

pytestmark = pytest.mark.anyio
CATALOG = make_catalog()
NAMES = [spec.name for spec in CATALOG.specs()]
CHECK = JsonSchemaCheck()
OUTPUT_MAX = OUTPUT_BYTES_MAX + 1024
GOOD: dict[str, JsonObject] = {
    "time.now": {"timezone": "Europe/Prague"},
    "fs.read": {"path": "a.txt", "offset": 1, "limit": 10},
    "fs.write": {"path": "b/new.txt", "content": "x"},
    "fs.list": {"path": ".", "depth": 2},
    "fs.search": {"pattern": "hel+o", "path": ".", "glob": "*.txt"},
    "fs.patch": {"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n hello\n+world\n"},
    "artifact.read": {"id": ARTIFACT, "offset": 1, "limit": 100},
    "session.search": {"query": "what we said", "k": 5},
    "http.fetch": {"url": standing_site()},
    "skill.open": {"name": "investigate-failure"},
    "routine.create": {"name": "monday", "prompt": "Say hello.", "cron": "0 9 * * 1", "timezone": "Europe/Prague"},
}
BAD: dict[str, list[JsonObject]] = {
    "http.fetch": [
        {},
        {"url": ""},
        {"url": 1},
        {"url": "http://localhost/", "method": "get"},
        {"url": "http://localhost/", "method": "TRACE"},
        {"url": "http://localhost/", "headers": {"A": 1}},
        {"url": "http://localhost/", "headers": []},
        {"url": "http://localhost/", "body": {}},
        {"url": "http://localhost/", "x": 1},
    ],
    "skill.open": [
        {},
        {"name": ""},
        {"name": 1},
        {"name": "a" * 65},
        {"name": "a", "file": ""},
        {"name": "a", "file": 1},
        {"name": "a", "x": 1},
    ],
    "routine.create": [
        {},
        {"name": "a"},
        {"name": "", "prompt": "b", "every_s": 1},
        {"name": "a", "prompt": "b", "every_s": 0},
        {"name": "a", "prompt": "b", "every_s": "1"},
        {"name": "a", "prompt": "b", "every_s": True},
        {"name": "a", "prompt": "b", "cron": 5},
        {"name": "a", "prompt": "b", "every_s": 1, "misfire": "never"},
        {"name": "a", "prompt": "b", "every_s": 1, "overlap": []},
        {"name": "a", "prompt": "b", "every_s": 1, "principal": "user:bob"},
    ],
    "fs.list": [
        {},
        {"path": ""},
        {"path": 1},
        {"path": ".", "depth": 0},
        {"path": ".", "depth": 9},
        {"path": ".", "x": 1},
    ],
    "fs.search": [
        {},
        {"pattern": ""},
        {"pattern": 1},
        {"pattern": "a", "path": ""},
        {"pattern": "a", "glob": ""},
        {"pattern": "a", "glob": ["*"]},
        {"pattern": "a", "x": 1},
    ],
    "fs.patch": [{}, {"patch": ""}, {"patch": 1}, {"patch": "--- a/x", "path": "x"}],
    "time.now": [{"timezone": 1}, {"timezone": ""}, {"zone": "UTC"}],
    "fs.read": [
        {},
        {"path": ""},
        {"path": 1},
        {"path": "a", "offset": 0},
        {"path": "a", "limit": 1.5},
        {"path": "a", "x": 1},
    ],
    "fs.write": [
        {},
        {"path": "a"},
        {"content": "x"},
        {"path": "a", "content": 1},
        {"path": "a", "content": "", "mode": 1},
    ],
    "artifact.read": [
        {},
        {"id": "a"},
        {"id": ARTIFACT.upper()},
        {"id": ARTIFACT, "offset": -1},
        {"id": ARTIFACT, "limit": 10_000},
        {"id": ARTIFACT, "limit": 63},
        {"id": ARTIFACT, "path": "a"},
    ],
    "session.search": [{}, {"query": ""}, {"query": 1}, {"query": "a", "k": 0}, {"query": "a", "k": 51}, {"q": "a"}],
}


def tool(name: str) -> Tool:
    found = CATALOG.find(name)
    assert found is not None
    return found


def snapshot(root: Path) -> list[tuple[str, int, int, bytes]]:
    """Every file with its times and bytes: what must not change."""
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return [(str(path), path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in paths]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("hello\n")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_has_examples_here(name: str) -> None:
    assert name in GOOD
    assert BAD[name]


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_valid_closed_and_explained(name: str) -> None:
    schema = tool(name).spec.input_schema
    assert CHECK.schema_errors(schema) == ()
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert all(one.get("description") for one in properties.values())
    assert tool(name).spec.description.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_good_arguments_pass_and_bad_ones_are_caught_by_the_schema(name: str) -> None:
    schema = tool(name).spec.input_schema
    assert CHECK.errors(schema, GOOD[name]) == ()
    assert [arguments for arguments in BAD[name] if CHECK.errors(schema, arguments) == ()] == []


@pytest.mark.parametrize("name", NAMES)
def test_nature_touches_nothing_and_is_no_wilder_than_the_spec(name: str, root: Path) -> None:
    before = snapshot(root)
    nature = tool(name).nature(GOOD[name], (str(root),))
    assert snapshot(root) == before
    order = [EffectClass.READ_ONLY, EffectClass.IDEMPOTENT, EffectClass.ONCE]
    assert order.index(nature.effect_class) <= order.index(tool(name).spec.effect_class)
    has_files = tool(name).spec.capabilities & {Capability.FS_READ, Capability.FS_WRITE}
    assert bool(nature.paths) == bool(has_files)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=json_objects)
def test_nature_answers_whatever_it_is_asked(name: str, root: Path, arguments: JsonObject) -> None:
    for asked in (arguments, {**GOOD[name], **arguments}):
        tool(name).nature(asked, (str(root),))
        tool(name).nature(asked, ())


@pytest.mark.parametrize("name", NAMES)
async def test_good_call_comes_to_a_result_within_the_caps(name: str, root: Path) -> None:
    result = await tool(name).execute(GOOD[name], context(root))
    assert (result.outcome, result.error) == (Outcome.OK, None)
    assert 0 < len(result.output.encode()) <= OUTPUT_MAX


@pytest.mark.parametrize("name", NAMES)
async def test_read_only_tool_changes_nothing_and_a_repeat_changes_no_more(name: str, root: Path) -> None:
    before = snapshot(root)
    await tool(name).execute(GOOD[name], context(root))
    once = [(path, body) for path, _, _, body in snapshot(root)]
    await tool(name).execute(GOOD[name], context(root))
    assert [(path, body) for path, _, _, body in snapshot(root)] == once
    if tool(name).spec.effect_class is EffectClass.READ_ONLY:
        assert snapshot(root) == before


@pytest.mark.parametrize("name", NAMES)
async def test_bad_call_is_a_value_and_leaks_no_descriptor(name: str, root: Path) -> None:
    """The gate catches these before; a tool that is called with them all the same does not break."""
    for attempt in range(2):
        before = len(os.listdir("/proc/self/fd"))
        for arguments in BAD[name]:
            result = await tool(name).execute(arguments, context(root))
            assert (result.error is None) == (result.outcome is Outcome.OK)
        after = len(os.listdir("/proc/self/fd"))
        assert after <= before + (2 if attempt == 0 else 0)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Invalid) as caught:
        ToolCatalog([TimeNow(), TimeNow()])
    assert caught.value.code == "tool_duplicate"


def test_unknown_name_finds_nothing() -> None:
    assert CATALOG.find("shell.run") is None
