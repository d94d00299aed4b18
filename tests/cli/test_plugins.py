"""`palyra plugins` from outside: what is shown, what is refused, and that an install is whole or not there."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from palyra.adapters.runtimes.wasm.install import ZIP_BYTES_MAX, ZIP_MEMBERS_MAX, read_candidate
from palyra.app import Home
from palyra.app.plugins import list_plugins, plugins_folder
from palyra.cli.main import app
from palyra.core.errors import PalyraError
from tests.runtimes.wasm_plugins import ECHO, SPIN, manifest, module, shelve

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "textstats"
SHA256 = hashlib.sha256((EXAMPLE / "textstats.wasm").read_bytes()).hexdigest()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def plugins(home: Home, *arguments: str, text: str = "") -> Result:
    result = CliRunner().invoke(app, ["--home", str(home.root), "plugins", *arguments], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), "a crash shows no traceback"
    return result


def answer(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    members: dict[str, object] = json.loads(result.stdout)
    return members


def code(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr.split(":")[1].strip()


def installed(home: Home) -> list[str]:
    folder = plugins_folder(home)
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.exists() else []


def zipped(path: Path, members: dict[str, bytes], links: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = ((stat.S_IFLNK if name in links else stat.S_IFREG) | 0o644) << 16
            archive.writestr(member, body, zipfile.ZIP_DEFLATED)
    return path


def example_members(folder: str = "") -> dict[str, bytes]:
    return {f"{folder}{name}": (EXAMPLE / name).read_bytes() for name in ("plugin.toml", "textstats.wasm")}


def test_plugin_is_installed_listed_and_removed(home: Home) -> None:
    made = answer(plugins(home, "install", str(EXAMPLE), "--yes", "--json"))
    plugin = made["plugin"]
    assert isinstance(plugin, dict)
    assert (made["ok"], plugin["name"], plugin["sha256"], plugin["capabilities"]) == (True, "textstats", SHA256, [])
    listed = answer(plugins(home, "list", "--json"))
    assert (listed["items"], listed["broken"], listed["next_after"]) == ([plugin], [], None)
    assert answer(plugins(home, "remove", "textstats", "--json")) == {"ok": True, "name": "textstats"}
    assert plugins(home, "list").stdout == "there are no plugins; palyra plugins install PATH adds one\n"
    assert installed(home) == []


def test_person_is_shown_what_it_asks_for_and_may_say_no(home: Home) -> None:
    result = plugins(home, "install", str(EXAMPLE), text="n\n")
    assert result.exit_code == 1
    shown = dict(line.split("  ", 1) for line in result.stdout.splitlines() if "  " in line)
    assert shown["may use"].strip() == "nothing"
    assert shown["limits"].strip() == "1000000000 fuel, 4 MiB, 5 s"
    assert shown["tool wasm.textstats.count"].strip().startswith("read_only: Counts")
    assert installed(home) == []
    assert plugins(home, "install", str(EXAMPLE), text="y\n").exit_code == 0
    assert installed(home) == ["textstats"]
    assert "wasm.textstats.count" in plugins(home, "list").stdout


def test_hash_is_pinned_and_nothing_but_two_private_files_is_copied(home: Home) -> None:
    plugins(home, "install", str(EXAMPLE), "--yes")
    folder = plugins_folder(home) / "textstats"
    assert sorted(path.name for path in folder.iterdir()) == ["plugin.toml", "textstats.wasm"]
    assert (folder / "plugin.toml").read_text() == f'sha256 = "{SHA256}"\n' + (EXAMPLE / "plugin.toml").read_text()
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_installed_plugin_that_was_changed_is_listed_as_broken(home: Home) -> None:
    plugins(home, "install", str(EXAMPLE), "--yes")
    (plugins_folder(home) / "textstats" / "textstats.wasm").write_bytes(module(ECHO))
    listed = answer(plugins(home, "list", "--json"))
    assert listed["items"] == []
    assert "not the one that was installed" in str(listed["broken"])
    (row,) = [line for line in plugins(home, "list").stdout.splitlines() if "broken" in line]
    assert row.split()[0] == "textstats"


def test_second_of_a_name_needs_to_be_told_to_replace(home: Home, tmp_path: Path) -> None:
    plugins(home, "install", str(EXAMPLE), "--yes")
    changed = shutil.copytree(EXAMPLE, tmp_path / "changed")
    text = (changed / "plugin.toml").read_text().replace("1.0.0", "1.0.1")
    (changed / "plugin.toml").write_text(text)
    refused = plugins(home, "install", str(changed), "--yes", "--json")
    assert code(refused) == "plugin_exists"
    assert answer(plugins(home, "install", str(changed), "--yes", "--replace", "--json"))["ok"] is True
    assert [row.version for row in list_plugins(home).rows] == ["1.0.1"]
    assert installed(home) == ["textstats"]


@pytest.mark.parametrize("folder", ["", "textstats/"])
def test_zip_is_installed_like_its_folder(home: Home, tmp_path: Path, folder: str) -> None:
    members = {**example_members(folder), f"{folder}README.md": b"x", "deep/er/plugin.toml": b"not this one"}
    path = zipped(tmp_path / "p.zip", members)
    assert plugins(home, "install", str(path), "--yes").exit_code == 0
    assert [row.sha256 for row in list_plugins(home).rows] == [SHA256]


@pytest.mark.parametrize(
    ("more", "links", "expected"),
    [
        ({"../../evil": b"x"}, (), "archive_invalid"),
        ({"/etc/evil": b"x"}, (), "archive_invalid"),
        ({"a/../../evil": b"x"}, (), "archive_invalid"),
        ({"..\\evil": b"x"}, (), "archive_invalid"),
        ({"link": b"/etc/passwd"}, ("link",), "archive_invalid"),
        ({"textstats.wasm": b"/etc/passwd"}, ("textstats.wasm",), "archive_invalid"),
        ({f"f{number}": b"" for number in range(ZIP_MEMBERS_MAX)}, (), "archive_invalid"),
        ({"textstats.wasm": b"\0" * (16 * 1024 * 1024 + 1)}, (), "plugin_too_large"),
        ({"plugin.toml": b"#" * (256 * 1024 + 1)}, (), "plugin_too_large"),
        ({"textstats.wasm": b"none"}, (), "module_invalid"),
        ({"other/plugin.toml": b""}, (), "plugin_incomplete"),
    ],
    ids=["up", "root", "through", "backslash", "link", "linked", "many", "bomb", "text_bomb", "garbage", "two"],
)
def test_zip_that_means_harm_is_refused_and_leaves_nothing(
    home: Home, tmp_path: Path, more: dict[str, bytes], links: tuple[str, ...], expected: str
) -> None:
    path = zipped(tmp_path / "p.zip", {**example_members(), **more}, links)
    before = sorted(tmp_path.rglob("*"))
    assert code(plugins(home, "install", str(path), "--yes")) == expected
    assert sorted(tmp_path.rglob("*")) == before


def test_zip_of_too_many_names_or_bytes_or_odd_packing_is_refused(home: Home, tmp_path: Path) -> None:
    many = zipped(tmp_path / "many.zip", {**example_members(), **{f"f{number}": b"" for number in range(300)}})
    assert code(plugins(home, "install", str(many), "--yes")) == "archive_invalid"
    with zipfile.ZipFile(tmp_path / "odd.zip", "w", zipfile.ZIP_LZMA) as archive:
        for name, body in example_members().items():
            archive.writestr(name, body)
    assert code(plugins(home, "install", str(tmp_path / "odd.zip"), "--yes")) == "archive_invalid"
    with (tmp_path / "large.zip").open("wb") as file:
        file.truncate(ZIP_BYTES_MAX + 1)
    assert code(plugins(home, "install", str(tmp_path / "large.zip"), "--yes")) == "plugin_too_large"


def test_zip_that_lies_is_refused(home: Home, tmp_path: Path) -> None:
    path = zipped(tmp_path / "p.zip", example_members())
    body = bytearray(path.read_bytes())
    body[60] ^= 0xFF
    path.write_bytes(body)
    assert plugins(home, "install", str(path), "--yes").exit_code == 1
    (tmp_path / "no.zip").write_bytes(b"PK\x05\x06 no archive")
    assert code(plugins(home, "install", str(tmp_path / "no.zip"), "--yes")) == "archive_invalid"
    assert installed(home) == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_zip_is_read_or_refused_in_words(tmp_path: Path, data: st.DataObject) -> None:
    path = zipped(tmp_path / "p.zip", example_members())
    body = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[place] = data.draw(st.integers(0, 255))
    path.write_bytes(body[: data.draw(st.sampled_from([len(body), len(body) - 5, len(body) // 2]))])
    try:
        assert read_candidate(path, lambda schema: ()).manifest.function
    except PalyraError as error:
        assert error.message


def spoiled(tmp_path: Path, text: str | None = None, wasm: bytes | None = None) -> Path:
    wasm = module(ECHO) if wasm is None else wasm
    return shelve(tmp_path, wasm, manifest(wasm) if text is None else text)


@pytest.mark.parametrize(
    ("text", "wasm", "expected"),
    [
        ("name = 1", None, "manifest_invalid"),
        (manifest(b"other"), None, "module_changed"),
        (None, b"\0asm garbage", "module_invalid"),
        (
            None,
            module(SPIN, imports='(import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))'),
            "import_missing",
        ),
        (None, module(ECHO, "(func $s unreachable)", start="(start $s)"), "trap"),
        (None, module("", memory='(memory (export "memory") 1)'), "module_invalid"),
    ],
    ids=["manifest", "pin", "garbage", "wasi", "start", "function"],
)
def test_plugin_that_could_not_run_is_not_installed(
    home: Home, tmp_path: Path, text: str | None, wasm: bytes | None, expected: str
) -> None:
    assert code(plugins(home, "install", str(spoiled(tmp_path, text, wasm)), "--yes")) == expected
    assert installed(home) == []


def test_links_and_missing_things_are_refused(home: Home, tmp_path: Path) -> None:
    folder = spoiled(tmp_path)
    (folder / "p.wasm").rename(tmp_path / "real")
    assert code(plugins(home, "install", str(folder), "--yes")) == "plugin_incomplete"
    (folder / "p.wasm").symlink_to(tmp_path / "real")
    assert code(plugins(home, "install", str(folder), "--yes")) == "plugin_unreadable"
    assert code(plugins(home, "install", str(tmp_path / "nowhere"), "--yes")) == "plugin_missing"
    assert not home.root.exists()


@pytest.mark.parametrize("name", ["nothing", "..", ".", "../bait", ".lock", "", "A", "{bait}", "textstats/../../bait"])
def test_only_a_plugin_can_be_removed(home: Home, tmp_path: Path, name: str) -> None:
    """What lies outside is a folder of this test's own: a name that led there would take it away for real."""
    plugins(home, "install", str(EXAMPLE), "--yes")
    baits = [tmp_path / "bait", home.root / "bait"]
    for bait in baits:
        bait.mkdir()
    assert code(plugins(home, "remove", "--", name.format(bait=tmp_path / "bait"))) == "plugin_unknown"
    assert installed(home) == ["textstats"]
    assert all(bait.is_dir() for bait in baits)


def test_removing_nothing_makes_no_home(home: Home) -> None:
    assert code(plugins(home, "remove", "nothing")) == "plugin_unknown"
    assert not home.root.exists()


def test_broken_plugin_can_be_removed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    plugins_folder(home).mkdir(parents=True)
    (plugins_folder(home) / "linked").symlink_to(outside)
    assert plugins(home, "remove", "linked").stdout == "linked is removed\n"
    assert (outside / "kept").exists()
    assert installed(home) == []


def test_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    assert code(plugins(Home(tmp_path / "home"), "install", str(EXAMPLE), "--yes", "--json")) == "plugins_unwritable"


@pytest.mark.parametrize("act", ["first", "replace", "remove"])
def test_killed_at_any_step_leaves_nothing_or_the_whole_plugin(tmp_path: Path, act: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.plugin_kills", act, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) > 10
    assert [line["was_killed"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert all(line["broken"] == [] for line in lines)
    assert {tuple(line["tools"]) for line in lines} == {(), ("wasm.textstats.count",)}
    assert {tuple(line["afterwards"]) for line in lines} == {(".lock", "textstats")}, "leftovers are cleared"


@pytest.mark.parametrize("command", ["install", "list", "remove"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(app, ["plugins", command, "--help"])
    assert f"palyra plugins {command}" in result.stdout.partition("Examples:")[2]
