"""Traits: the rules name no tool, and each tool's own file says what the rules ask about it."""

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

import palyra
from palyra.app.engine_builder import build_catalog
from palyra.core.tools import ToolSpec, Trait, spec_digest
from tests.support.traits import traits_of

SPECS = {spec.name: spec for spec in build_catalog().specs()}
ROOT = Path(palyra.__file__).parent
SOURCES = [path for part in ("core", "engine") for path in (ROOT / part).rglob("*.py")]
ARGUMENTS = {
    Trait.TOUCHES_PATH: {"path"},
    Trait.RUNS_COMMAND: {"command"},
    Trait.SENDS_REQUEST: {"url", "method", "headers", "body"},
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_rule_names_a_tool(path: Path) -> None:
    """Words for a model or a person may: those are sentences, and nothing is decided by them."""
    families = {f"{name.partition('.')[0]}." for name in SPECS}
    constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    if path.parts[-2:] == ("references", "calls.py"):
        return  # A reference stands for a call of a certain tool, by definition.
    assert not {*SPECS, *families, "mcp.", "wasm."}.intersection(each for each in constants if isinstance(each, str))


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_a_tool_has_the_arguments_that_its_traits_speak_of(spec: ToolSpec) -> None:
    properties = spec.input_schema.get("properties")
    assert isinstance(properties, dict)
    for trait in spec.traits:
        assert ARGUMENTS.get(trait, set()) <= set(properties)


@pytest.mark.parametrize("name", ["fs.list", "fs.read", "fs.write", "http.fetch", "skill.open", "artifact.read"])
def test_the_tools_of_tests_declare_what_the_real_ones_do(name: str) -> None:
    assert SPECS[name].traits == traits_of(name)


def test_what_gives_back_what_was_kept_does_not_read_outside() -> None:
    outside = {name for name, spec in SPECS.items() if Trait.READS_OUTSIDE in spec.traits}
    assert outside <= {name for name in SPECS if name == "http.fetch" or name.startswith("browser.")}
    assert "http.fetch" in outside


def test_a_trait_more_is_no_other_tool() -> None:
    """A call that waits for an answer over an upgrade still runs."""
    spec = SPECS["time.now"]
    assert spec_digest(replace(spec, traits=frozenset(Trait))) == spec_digest(spec)
