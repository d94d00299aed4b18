"""What the tools need: found without starting or importing anything heavy, and told plainly where it is missing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from palyra.adapters.browser.installed import NAMES, find_chromium, missing_tools
from palyra.adapters.browser.sessions import Browsers
from palyra.adapters.browser.tools import browser_tools
from palyra.adapters.net.guard import Guard
from palyra.adapters.schema import JsonSchemaCheck
from palyra.core.events.base import JsonObject
from palyra.core.tools import Runtime
from palyra.core.trust import Trust
from tests.support.strategies import json_objects

GOOD: dict[str, JsonObject] = {
    "browser.open": {"url": "https://example.com/"},
    "browser.read": {},
    "browser.click": {"ref": "e410233"},
    "browser.type": {"ref": "e410233", "text": "plums", "submit": True},
    "browser.screenshot": {"full_page": True},
}
BAD: dict[str, list[JsonObject]] = {
    "browser.open": [{}, {"url": ""}, {"url": 1}, {"url": "a" * 9000}, {"url": "https://example.com/", "x": 1}],
    "browser.read": [{"ref": "e1"}, {"url": "https://example.com/"}],
    "browser.click": [{}, {"ref": 1}, {"ref": ""}, {"ref": "e" * 20}, {"ref": "e1", "text": "x"}],
    "browser.type": [
        {},
        {"ref": "e1"},
        {"text": "x"},
        {"ref": "e1", "text": 1},
        {"ref": "e1", "text": "x", "submit": 1},
    ],
    "browser.screenshot": [{"full_page": "yes"}, {"path": "a.png"}],
}


def make_program(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_chromium_is_found_on_the_path_in_the_order_of_preference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() is None
    chrome = make_program(tmp_path, "google-chrome")
    assert find_chromium() == str(chrome)
    chromium = make_program(tmp_path, "chromium")
    assert find_chromium() == str(chromium)


def test_configured_program_is_the_only_one(tmp_path: Path) -> None:
    assert find_chromium(str(make_program(tmp_path, "mine"))) == str(tmp_path / "mine")
    for unfit in (make_program(tmp_path, "text", 0o644), tmp_path, tmp_path / "absent", Path("chromium")):
        assert find_chromium(str(unfit)) is None


def test_missing_chromium_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed; install the extra: pip install 'palyra[browser]'")
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = missing_tools()
    assert [each.name for each in missing] == list(NAMES)
    assert all("apt install chromium" in each.reason for each in missing)
    assert "browser.executable" in missing_tools(str(tmp_path / "absent"))[0].reason
    make_program(tmp_path, "chromium")
    assert missing_tools() == ()


def test_missing_playwright_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [each.name for each in missing_tools()] == list(NAMES)
    own_pip = Path(sys.executable).parent / "pip"  # Another one would install into another environment.
    assert f"{own_pip} install 'palyra[browser]'" in missing_tools()[0].reason


def test_tools_are_made_without_importing_playwright() -> None:
    words = "import sys, palyra.adapters.browser.tools, palyra.adapters.browser.installed as i; i.missing_tools()"
    checked = f"{words}; sys.exit(any(name.partition('.')[0] == 'playwright' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", checked], timeout=60).returncode == 0


def test_specs_are_closed_explained_and_external(tmp_path: Path) -> None:
    check = JsonSchemaCheck()
    tools = browser_tools(Browsers(Guard(), tmp_path))
    assert [tool.spec.name for tool in tools] == list(NAMES)
    for tool in tools:
        spec = tool.spec
        assert check.schema_errors(spec.input_schema) == ()
        assert (spec.input_schema["additionalProperties"], spec.output_trust, spec.runtime) == (
            False,
            Trust.EXTERNAL,
            Runtime.INTERNAL,
        )
        assert check.errors(spec.input_schema, GOOD[spec.name]) == ()
        assert [each for each in BAD[spec.name] if check.errors(spec.input_schema, each) == ()] == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=json_objects)
def test_nature_answers_whatever_it_is_asked(tmp_path: Path, arguments: JsonObject) -> None:
    for tool in browser_tools(Browsers(Guard(), tmp_path)):
        for asked in (arguments, {**GOOD[tool.spec.name], **arguments}):
            assert tool.nature(asked, ()).effect_class is tool.spec.effect_class
