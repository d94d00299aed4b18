"""Links with names that something obeys: found in a bounded look-up, with every path on their way."""

import os
import time
from pathlib import Path

import pytest

from palyra.adapters.files import known_links
from palyra.adapters.files.known_links import NAMES_MAX, OBEYED, find_links, linked_names
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.adapters.tools.fs_write import FsWrite


def test_a_link_with_an_obeyed_name_gives_its_name_to_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").symlink_to("docs/x.md")
    (tmp_path / "notes").symlink_to("docs/y.md")
    found = {path: linked_names((path,), (str(tmp_path),)) for path in ("docs/x.md", "docs/y.md", "docs/x.md.bak")}
    assert found == {"docs/x.md": ("CLAUDE.md",), "docs/y.md": (), "docs/x.md.bak": ()}
    assert linked_names((str(tmp_path / "docs/x.md"),), (str(tmp_path),)) == ("CLAUDE.md",)


def test_a_link_to_a_folder_leads_to_what_is_below(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/hooks").symlink_to("../tools/hooks")
    (tmp_path / ".vscode").symlink_to("settings")
    assert linked_names(("tools/hooks/pre-commit",), (str(tmp_path),)) == (".git/hooks/pre-commit",)
    assert linked_names(("settings/tasks.json",), (str(tmp_path),)) == (".vscode/tasks.json",)


def test_every_link_on_the_way_counts_and_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").symlink_to("a")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "CLAUDE.md").symlink_to("PALYRA.md")
    (tmp_path / "PALYRA.md").symlink_to("CLAUDE.md")
    links = linked_names(("b",), (str(tmp_path),))
    assert links == ("AGENTS.md",)


def test_links_of_every_root_count(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / ".envrc").symlink_to(first / "env")
    os.symlink(first, tmp_path / "alias")
    assert linked_names(("env",), (str(tmp_path / "alias"), str(second))) == (".envrc",)


def test_fs_write_and_fs_patch_say_which_links_lead_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").symlink_to("docs/x.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/x.md").write_text("old\n")
    root = (str(tmp_path),)
    patch = "--- a/docs/x.md\n+++ b/docs/x.md\n@@ -1 +1 @@\n-old\n+new\n"
    assert FsWrite().nature({"path": "docs/x.md", "content": "new"}, root).linked_names == ("CLAUDE.md",)
    assert FsPatch().nature({"patch": patch}, root).linked_names == ("CLAUDE.md",)
    assert FsWrite().nature({"path": "docs/z.md", "content": "new"}, root).linked_names == ()


def test_link_that_goes_away_between_two_looks_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes").write_text("")
    (tmp_path / "AGENTS.md").symlink_to("notes")
    faithful, faults = os.path.realpath, iter((FileNotFoundError(), FileNotFoundError()))

    def realpath(path: str) -> str:
        fault = next(faults, None)
        if fault is not None:
            raise fault
        return faithful(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    assert linked_names(["notes"], (str(tmp_path),)) == ("AGENTS.md",)


def test_every_link_on_the_way_of_a_name_counts_and_so_does_what_the_way_leads_through(tmp_path: Path) -> None:
    for folder in ("v1", "late"):
        (tmp_path / folder).mkdir()
    (tmp_path / "v1/guide.md").write_text("")
    for link, target in (("now", "v1"), ("AGENTS.md", "now/guide.md"), (".envrc", "late/env"), ("CLAUDE.md", "gone/x")):
        (tmp_path / link).symlink_to(target)
    links = find_links((str(tmp_path),), ())
    assert links.names_of(f"{tmp_path}/now") == links.names_of(f"{tmp_path}/v1/guide.md") == ("AGENTS.md",)
    behind = {path: links.names_behind(f"{tmp_path}/{path}") for path in ("late", "gone", "v1", "lat")}
    assert behind == {"late": (".envrc",), "gone": ("CLAUDE.md",), "v1": ("AGENTS.md",), "lat": ()}


def _set_up_repository(folder: Path, settings: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config").write_text(settings)


SETTINGS = '[filter "x"]\n\tclean = "sh tools/x.txt"\n'


def _is_obeyed_by_git(path: str, root: Path) -> bool:
    return linked_names((path,), (str(root),)) == (".git/config",)


def test_what_settings_name_by_a_link_is_what_the_link_leads_to(tmp_path: Path) -> None:
    _set_up_repository(tmp_path / ".git", f"{SETTINGS}[include]\n\tpath = ../linked.conf\n")
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/x.txt", "scripts/y.txt", "real.conf"):
        (tmp_path / name).write_text("")
    (tmp_path / "tools").symlink_to("scripts")
    (tmp_path / "linked.conf").symlink_to("real.conf")
    obeyed = {path: _is_obeyed_by_git(path, tmp_path) for path in ("scripts/x.txt", "real.conf", "scripts/y.txt")}
    assert obeyed == {"scripts/x.txt": True, "real.conf": True, "scripts/y.txt": False}


@pytest.mark.parametrize(
    "settings",
    [
        '[filter "x"]\n\tclean = sh \\\n\t\ttools/x.txt\n',
        "[pager]\n\tlog = sh tools/x.txt\n",
        "[interactive]\n\tdiffFilter = sh tools/x.txt\n",
        '[diff "x"]\n\tcommand = "sh -c \\"sh tools/x.txt\\""\n',
        "[core]\n\tpager = ~/tools/x.txt\n",
    ],
)
def test_settings_name_programs_in_many_ways(tmp_path: Path, settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _set_up_repository(tmp_path / ".git", settings)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/x.txt").write_text("")
    assert _is_obeyed_by_git("tools/x.txt", tmp_path)


def test_settings_of_every_repository_around_a_path_count(tmp_path: Path) -> None:
    root = tmp_path / "whole/root"
    for folder in ("nested", "apart", "linked", ""):
        (root / folder / "tools").mkdir(parents=True)
        (root / folder / "tools/x.txt").write_text("")
    _set_up_repository(root / "nested/.git", SETTINGS + "[alias]\n\tall = !git add .\n")
    _set_up_repository(tmp_path / "meta", SETTINGS)
    _set_up_repository(tmp_path / "meta/worktrees/linked", "")
    (tmp_path / "meta/worktrees/linked/commondir").write_text("../..\n")
    (root / "apart/.git").write_text(f"gitdir: {tmp_path}/meta\n")
    (root / "linked/.git").write_text(f"gitdir: {tmp_path}/meta/worktrees/linked\n")
    _set_up_repository(tmp_path / "whole/.git", '[filter "y"]\n\tclean = sh root/tools/x.txt\n')
    asked = ["nested/tools/x.txt", "apart/tools/x.txt", "linked/tools/x.txt", "tools/x.txt"]
    assert [path for path in asked if not _is_obeyed_by_git(path, root)] == []
    assert linked_names(("nested/tools/y.txt", "nested/x.txt", "x.txt"), (str(root),)) == ()


def test_what_too_many_links_lead_to_counts_as_obeyed(tmp_path: Path) -> None:
    """A command makes twenty thousand links as freely as one, and each path they lead to had all of their names."""
    (tmp_path / "d").mkdir()
    for number in range(NAMES_MAX):
        (tmp_path / f"{number}.sh").symlink_to("d/e")
    links = find_links((str(tmp_path),), ())
    assert len(links.names_of(f"{tmp_path}/d/e")) == len(links.names_of(f"{tmp_path}/d/e/f")) == NAMES_MAX
    assert len(links.names_behind(f"{tmp_path}/d")) == NAMES_MAX
    (tmp_path / "more.sh").symlink_to("d/e")
    links = find_links((str(tmp_path),), ())
    assert links.names_of(f"{tmp_path}/d/e") == links.names_of(f"{tmp_path}/d/e/f") == (OBEYED,)
    assert links.names_behind(f"{tmp_path}/d") == (OBEYED,)
    assert links.names_of(f"{tmp_path}/d") == links.names_of(f"{tmp_path}/d/other") == ()


def test_a_link_does_not_hide_among_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CLAUDE.md").symlink_to("docs/x.md")
    for number in range(5):
        (tmp_path / f"{number}").touch()
    monkeypatch.setattr(known_links, "ENTRIES_MAX", 6)
    assert linked_names(("docs/x.md", "docs/y.md"), (str(tmp_path),)) == ("CLAUDE.md",)
    (tmp_path / "6").touch()
    is_obeyed = [".git/config" in linked_names((path,), (str(tmp_path),))[0] for path in ("docs/x.md", "docs/y.md")]
    assert is_obeyed == [True, True]


@pytest.mark.parametrize("place", [".git", "commondir", "config"])
def test_a_path_with_a_zero_in_it_names_nothing(tmp_path: Path, place: str) -> None:
    if place == ".git":
        (tmp_path / ".git").write_text("gitdir: a\x00b\n")
    else:
        _set_up_repository(tmp_path / ".git", "")
        (tmp_path / ".git" / place).write_text("[include]\n\tpath = a\x00b\n")
    assert linked_names(("x",), (str(tmp_path),)) == ()


def test_settings_of_one_endless_heading_are_read_at_once(tmp_path: Path) -> None:
    _set_up_repository(tmp_path / ".git", "[" + "a" * 64_000)
    spent_s = -time.process_time()
    assert linked_names(("x",), (str(tmp_path),)) == ()
    spent_s += time.process_time()
    assert spent_s < 0.5
