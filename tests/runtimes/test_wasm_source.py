"""Plugins of a home as a source of tools: they come, change and go while a daemon runs, and broken ones say why."""

import hashlib
import os
from pathlib import Path

import pytest

from palyra.adapters.runtimes.wasm.compiler import WASM_BYTES_MAX
from palyra.adapters.runtimes.wasm.source import LOOK_EVERY_S, PLUGINS_MAX, PluginTools
from palyra.adapters.tools.catalog import ToolCatalog
from tests.runtimes.wasm_plugins import ECHO, SCHEMA_ERRORS, SPIN, manifest, module, shelve

WASM = module(ECHO)


class Watch:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_on(self) -> None:
        self.now_s += LOOK_EVERY_S


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


def source_of(plugins: Path, watch: Watch) -> PluginTools:
    return PluginTools(plugins, SCHEMA_ERRORS, watch)


def names(source: PluginTools) -> list[str]:
    return [tool.spec.name for tool in source.tools()]


def test_home_without_plugins_has_none(plugins: Path, watch: Watch) -> None:
    source = source_of(plugins, watch)
    assert (source.tools(), source.missing()) == ((), ())


def test_same_tuple_is_given_until_something_changes(plugins: Path, watch: Watch) -> None:
    shelve(plugins, WASM)
    source = source_of(plugins, watch)
    first = source.tools()
    watch.pass_on()
    assert source.tools() is first
    shelve(plugins, module(SPIN), name="q")
    assert source.tools() is first, "not looked at again so soon"
    watch.pass_on()
    assert names(source) == ["wasm.p.f", "wasm.q.f"]
    assert source.tools()[0] is first[0], "what did not change is the same tool"


def test_version_of_a_tool_is_the_hash_of_its_module(plugins: Path, watch: Watch) -> None:
    source = source_of(plugins, watch)
    for wasm in (WASM, module(SPIN)):
        shelve(plugins, wasm)
        watch.pass_on()
        assert [tool.spec.version for tool in source.tools()] == [hashlib.sha256(wasm).hexdigest()]


def test_catalog_finds_plugins_that_come_and_go(plugins: Path, watch: Watch) -> None:
    catalog = ToolCatalog([], [source_of(plugins, watch)])
    assert catalog.find("wasm.p.f") is None
    folder = shelve(plugins, WASM)
    watch.pass_on()
    assert catalog.find("wasm.p.f") is not None
    os.rename(folder, plugins / ".outgoing-1")
    watch.pass_on()
    assert catalog.find("wasm.p.f") is None
    assert catalog.missing() == ()


def test_module_that_is_not_the_pinned_one_is_refused_by_the_names_of_its_tools(plugins: Path, watch: Watch) -> None:
    folder = shelve(plugins, WASM)
    source = source_of(plugins, watch)
    assert names(source) == ["wasm.p.f"]
    (folder / "p.wasm").write_bytes(module(SPIN))
    watch.pass_on()
    assert source.tools() == ()
    (missing,) = source.missing()
    assert missing.name == "wasm.p.f"
    assert "not the one that was installed" in missing.reason
    (folder / "p.wasm").write_bytes(WASM)
    watch.pass_on()
    assert (names(source), source.missing()) == (["wasm.p.f"], ())


def spoil_text(folder: Path) -> None:
    (folder / "plugin.toml").write_text("name = 1")


def spoil_encoding(folder: Path) -> None:
    (folder / "plugin.toml").write_bytes(b"\xff")


def lose_module(folder: Path) -> None:
    (folder / "p.wasm").unlink()


def lose_manifest(folder: Path) -> None:
    (folder / "plugin.toml").unlink()


def unpin(folder: Path) -> None:
    lines = (folder / "plugin.toml").read_text().splitlines(keepends=True)
    (folder / "plugin.toml").write_text("".join(line for line in lines if not line.startswith("sha256")))


def link_module(folder: Path) -> None:
    (folder / "p.wasm").rename(folder.parent.parent / "elsewhere")
    (folder / "p.wasm").symlink_to(folder.parent.parent / "elsewhere")


def pipe_module(folder: Path) -> None:
    (folder / "p.wasm").unlink()
    os.mkfifo(folder / "p.wasm")


def bloat_module(folder: Path) -> None:
    with (folder / "p.wasm").open("ab") as file:
        file.truncate(WASM_BYTES_MAX + 1)


def link_folder(folder: Path) -> None:
    folder.rename(folder.parent.parent / "p")
    folder.symlink_to(folder.parent.parent / "p")


def move_folder(folder: Path) -> None:
    folder.rename(folder.parent / "q")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_text, "must be 1 to 32"),
        (spoil_encoding, "not UTF-8"),
        (lose_module, "p.wasm is missing"),
        (lose_manifest, "plugin.toml is missing"),
        (unpin, "pins no sha256"),
        (link_module, "p.wasm is a link"),
        (pipe_module, "no regular file"),
        (bloat_module, "larger than"),
        (link_folder, "is no folder"),
        (move_folder, "its folder is q"),
    ],
)
def test_broken_plugin_is_missing_with_the_reason_and_disturbs_no_other(
    plugins: Path, watch: Watch, spoil: object, words: str
) -> None:
    shelve(plugins, WASM, name="other")
    folder = shelve(plugins, WASM)
    assert callable(spoil)
    spoil(folder)
    source = source_of(plugins, watch)
    assert names(source) == ["wasm.other.f"]
    (missing,) = source.missing()
    assert words in missing.reason
    assert missing.name.startswith("wasm.")


def test_stray_file_is_told_and_hidden_folders_are_passed_over(plugins: Path, watch: Watch) -> None:
    shelve(plugins, WASM, name=".incoming-1")
    (plugins / "note").write_text("x")
    source = source_of(plugins, watch)
    assert source.tools() == ()
    assert [each.name for each in source.missing()] == ["wasm.note"]


def test_more_plugins_than_the_limit_are_told(plugins: Path, watch: Watch) -> None:
    for number in range(PLUGINS_MAX + 1):
        shelve(plugins, WASM, name=f"p{number:03}")
    source = source_of(plugins, watch)
    assert len(source.tools()) == PLUGINS_MAX
    assert [each.name for each in source.missing()] == [f"wasm.p{PLUGINS_MAX:03}"]
    first = source.tools()
    watch.pass_on()
    assert source.tools() is first


def test_several_functions_are_several_tools(plugins: Path, watch: Watch) -> None:
    shelve(plugins, WASM, manifest(WASM, functions=("f", "g-h_2")))
    assert names(source_of(plugins, watch)) == ["wasm.p.f", "wasm.p.g-h_2"]


def test_looking_for_plugins_loads_no_wasmtime(plugins: Path) -> None:
    import subprocess
    import sys

    shelve(plugins, WASM)
    code = (
        "import sys; from pathlib import Path; from palyra.adapters.runtimes.wasm.source import PluginTools\n"
        f"tools = PluginTools(Path({str(plugins)!r}), lambda schema: ()).tools()\n"
        "print(len(tools), 'wasmtime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("1 False\n", "")
