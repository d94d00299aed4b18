"""Manifests: everything wrong is told at once with what to do, and no text is too strange to be answered."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.runtimes.wasm.manifest import (
    FUEL_MAX,
    FUNCTIONS_MAX,
    MANIFEST_BYTES_MAX,
    MEMORY_MIB_MAX,
    AnswerForm,
    HostGrant,
    ManifestInvalid,
    PluginManifest,
    read_manifest,
)
from palyra.core.events.tool import EffectClass
from tests.runtimes.wasm_plugins import SCHEMA_ERRORS

EXAMPLE = (Path(__file__).parents[2] / "examples/plugins/textstats/plugin.toml").read_text()
TOP = 'name = "p"\nversion = "1"\ndescription = "d"\nwasm = "p.wasm"\n'
FUNCTION = '[[function]]\nname = "f"\ndescription = "d"\ninput_schema = { type = "object" }\n'


def read(text: str) -> PluginManifest:
    return read_manifest(text, SCHEMA_ERRORS)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ManifestInvalid) as caught:
        read(text)
    return caught.value.problems


def test_least_manifest_asks_for_nothing_and_is_once() -> None:
    manifest = read(TOP + FUNCTION)
    assert (manifest.capabilities, manifest.sha256) == (frozenset(), None)
    assert (manifest.function[0].effect_class, manifest.function[0].output) == (EffectClass.ONCE, AnswerForm.TEXT)


def test_whole_manifest_is_read() -> None:
    text = TOP + f'sha256 = "{"a" * 64}"\ncapabilities = ["clock", "log", "random"]\n[limits]\nfuel = {FUEL_MAX}\n'
    text += f"memory_mib = {MEMORY_MIB_MAX}\ntimeout_s = 60\n{FUNCTION}effect_class = 'read_only'\noutput = 'json'\n"
    manifest = read(text)
    assert manifest.capabilities == frozenset(HostGrant)
    assert (manifest.limits.fuel, manifest.limits.memory_mib, manifest.limits.timeout_s) == (FUEL_MAX, 256, 60.0)
    assert manifest.function[0].effect_class is EffectClass.READ_ONLY


def test_every_problem_is_told_at_once() -> None:
    text = (
        'name = "Big Name"\nversion = 1\ndescription = ""\nwasm = "../p.wasm"\nsha256 = "12"\ncapabilites = []\n'
        'capabilities = ["network"]\n[limits]\nfuel = 0\nmemory_mib = 257\ntimeout_s = 61\nstack = 1\n'
        '[[function]]\nname = "f.g"\neffect_class = "never"\n'
        '[[function]]\nname = "g"\ndescription = "d"\ninput_schema = { type = "array" }\n'
        '[[function]]\nname = "g"\ndescription = "d"\ninput_schema = { type = "object", pattern = 1 }\n'
    )
    found = problems(text)
    places = [problem.partition(": ")[0] for problem in found]
    assert places == [
        "name",
        "version",
        "description",
        "wasm",
        "sha256",
        "capabilites",
        "capabilities",
        "limits.fuel",
        "limits.memory_mib",
        "limits.timeout_s",
        "limits.stack",
        "function 1.name",
        "function 1.effect_class",
        "function 1",
        "function 1",
        "function 2.input_schema",
        "function 3.input_schema",
        "function 3.name",
    ]
    assert "did you mean capabilities?" in found[5]
    assert "log, clock, random" in found[6]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs the key name"),
        ("name = \n", "plugin.toml, line 1: is not TOML"),
        (TOP, "1 to 64 functions"),
        (TOP + "function = 1", "write [[function]]"),
        (TOP + "limits = 1\n" + FUNCTION, "write [limits]"),
        (TOP + FUNCTION * 2, "stands there twice"),
        (TOP + FUNCTION.replace('type = "object"', "type = 'object', pattern = nan"), "not valid"),
        ("a = " + "[" * 5000 + "]" * 5000, "too deep"),
        ("#" * (MANIFEST_BYTES_MAX + 1), "larger than"),
        (TOP.replace('"p"', '"p\\n"') + FUNCTION, "name: must be"),
        (TOP.replace('"p"', '"' + "p" * 33 + '"') + FUNCTION, "name: must be"),
        (TOP.replace('"p"', '"-p"') + FUNCTION, "name: must be"),
        (TOP.replace("p.wasm", "p.wasm\\n") + FUNCTION, "wasm: must be"),
        (TOP.replace("p.wasm", "a/p.wasm") + FUNCTION, "wasm: must be"),
        (TOP + "[limits]\nfuel = 99999999999999999999999\n" + FUNCTION, "limits.fuel: must be"),
        (TOP + "[limits]\ntimeout_s = nan\n" + FUNCTION, "limits.timeout_s: must be"),
        (TOP + "[limits]\ntimeout_s = inf\n" + FUNCTION, "limits.timeout_s: must be"),
        (TOP + "[limits]\nfuel = true\n" + FUNCTION, "limits.fuel: must be"),
    ],
)
def test_what_is_wrong_is_said_in_words(text: str, words: str) -> None:
    assert words in "; ".join(problems(text))


def test_date_in_a_schema_is_text() -> None:
    schema = read(TOP + FUNCTION.replace('type = "object"', "type = 'object', x = 1979-05-27")).function[0].input_schema
    assert schema == {"type": "object", "x": "1979-05-27"}


def test_functions_have_a_largest_count() -> None:
    tables = [FUNCTION.replace('"f"', f'"f{number}"') for number in range(FUNCTIONS_MAX + 1)]
    assert len(read(TOP + "".join(tables[:-1])).function) == FUNCTIONS_MAX
    assert "1 to 64 functions" in problems(TOP + "".join(tables))[0]


@given(st.text(max_size=300))
def test_any_text_is_read_or_explained(text: str) -> None:
    _answer(text)


@given(st.data())
def test_changed_manifest_is_read_or_explained(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(EXAMPLE)))
    end = data.draw(st.integers(start, min(len(EXAMPLE), start + 40)))
    put_in = data.draw(st.text(max_size=20) | st.sampled_from(["1", "[]", "true", "1e999", "[[function]]", '"', "nan"]))
    _answer(EXAMPLE[:start] + put_in + EXAMPLE[end:])


def _answer(text: str) -> None:
    try:
        assert read(text).function
    except ManifestInvalid as error:
        assert error.problems
