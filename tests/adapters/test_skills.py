"""Skills on disk: what is wrong is named, nothing leads outside, and what a person accepted is bound to its bytes."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.skills.folder import DEPTH_MAX, FILES_MAX, FOLDER_BYTES_MAX, FOLDERS_MAX
from palyra.adapters.skills.front_matter import (
    DESCRIPTION_LENGTH_MAX,
    FRONT_BYTES_MAX,
    SKILL_BYTES_MAX,
    SkillManifest,
    read_manifest,
)
from palyra.adapters.skills.skill_index import BUNDLED, FILE_SHOWN_BYTES_MAX, FolderSkills
from palyra.adapters.skills.tool_names import FOREIGN, PATTERNS_MAX, split_names, understand
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.core.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from palyra.core.skills import SkillCard, SkillPlace, SkillStatus
from palyra.core.tools import OUTPUT_INLINE_BYTES_MAX
from palyra.core.trust import Trust
from palyra.ports.skills import SkillWish
from tests.support.examples import examples
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio

TEXT = "---\nname: {name}\ndescription: Does {name}.\n---\n# How\n\nDo it.\n"


def write_skill(base: Path, name: str, text: str = TEXT, **files: str) -> Path:
    folder = base / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text.format(name=name))
    for path, body in files.items():
        (folder / path).write_text(body)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def skills(home: Path, tmp_path: Path) -> FolderSkills:
    return FolderSkills(home, tmp_path / "bundle" / "skills")


def one(skills: FolderSkills, workspace: Path | None = None) -> SkillCard:
    (card,) = skills.cards((str(workspace),) if workspace is not None else ())
    return card


def wish(name: str, workspace: Path | None = None, place: SkillPlace | None = None) -> SkillWish:
    return SkillWish(name=name, workspace=(str(workspace),) if workspace is not None else (), place=place)


# --- The form


def manifest(front: str, body: str = "Do it.", folder: str = "tidy") -> SkillManifest:
    return read_manifest(f"---\n{front}\n---\n{body}\n".encode(), folder)


def test_whole_front_matter_is_read() -> None:
    front = (
        "name: tidy\ndescription: >\n  Tidies\n  up.\nlicense: MIT\ncompatibility: any\n"
        "metadata:\n  author: me\nallowed-tools: fs.read Grep\nmodel: fast"
    )
    read = read_manifest(f"\ufeff---\r\n{front}\r\n---\r\n\r\nDo it.\r\n".encode(), "tidy")
    assert (read.problems, read.description, read.body) == ((), "Tidies up.", "Do it.")
    assert read.allowed_tools == ("fs.read", "fs.search")
    assert read.notes == ("not known here and left out: model",)


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ("description: d", "name is missing"),
        ("name: tidy", "description is missing"),
        ("name: [tidy]\ndescription: d", "name is not text"),
        ("name: Tidy\ndescription: d", "name is not 1 to 64"),
        ("name: tidy--up\ndescription: d", "name is not 1 to 64"),
        (f"name: {'a' * 65}\ndescription: d", "name is not 1 to 64"),
        ("name: other\ndescription: d", "the folder is tidy"),
        ("name: tidy\ndescription: ''", "description has 0 characters"),
        (f"name: tidy\ndescription: {'d' * (DESCRIPTION_LENGTH_MAX + 1)}", "description has 1025 characters"),
        ("name: tidy\ndescription: {a: b}", "description is not text"),
        ("name: tidy\ndescription: d\nlicense: [x]", "license is not text"),
        (f"name: tidy\ndescription: d\ncompatibility: {'c' * 501}", "compatibility has 501"),
        ("name: tidy\ndescription: d\nmetadata: [x]", "metadata is not a map"),
        ("name: tidy\ndescription: d\nallowed-tools: {a: b}", "allowed-tools is neither"),
        ("name: tidy\ndescription: d\nallowed-tools: [a, [b]]", "allowed-tools is neither"),
        (f"name: tidy\ndescription: d\nallowed-tools: {'fs.read ' * (PATTERNS_MAX + 1)}", "at most 256"),
        ("name: tidy\nname: tidy\ndescription: d", "there twice"),
        ("name: tidy\ndescription: d\nmetadata: {a: 1, a: 2}", "there twice"),
        ("name: tidy\ndescription: d\n? [a]\n: b", "a name is not text"),
        ("name: tidy\ndescription: &d x\nlicense: *d", "aliases are not taken"),
        ("- name", "not a map"),
        ("just words", "not a map"),
        ("name: [", "no plain YAML in line"),
        ("name: tidy\ndescription: a\u202eb", "cannot be seen"),
        ("name: tidy\ndescription: a\U000e0041b", "cannot be seen"),
        ("name: tidy\ndescription: " + "[" * 5000, "nested too deep"),
        ("name: tidy\ndescription: d\nlicense: " + "x" * FRONT_BYTES_MAX, "larger than 16384"),
    ],
)
def test_every_problem_is_named(front: str, words: str) -> None:
    read = manifest(front)
    assert words in "; ".join(read.problems)


def test_front_matter_ends_at_the_first_line_of_hyphens() -> None:
    read = manifest("name: tidy\ndescription: d\n--- \nname: x")
    assert (read.problems, read.body) == ((), "name: x\n---\nDo it.")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "does not begin with front matter"),
        (b"# Hello\n", "does not begin with front matter"),
        (b"---\nname: tidy\ndescription: d\n", "does not begin with front matter"),
        (b"---\nname: \xff\n---\n", "not UTF-8"),
        (b"---\nname: tidy\ndescription: d\n---\n \n", "no instructions"),
        (b"---\nname: ti\x00dy\n---\nx", "does not allow"),
        (b"-" * (SKILL_BYTES_MAX + 1), "larger than 65536"),
    ],
)
def test_file_that_is_no_skill_says_why(raw: bytes, words: str) -> None:
    assert words in "; ".join(read_manifest(raw, "tidy").problems)


def test_several_problems_are_named_at_once() -> None:
    assert len(read_manifest(b"---\nname: X\nlicense: [a]\n---\n", "tidy").problems) == 4


def test_a_billion_laughs_are_refused_at_the_first() -> None:
    laughs = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12))
    read = manifest(f"name: tidy\ndescription: d\nl0: &l0 lol\n{laughs}")
    assert "aliases are not taken" in read.problems[0]


def test_no_object_of_python_is_ever_made(tmp_path: Path) -> None:
    mark = tmp_path / "made"
    read = manifest(f"name: tidy\ndescription: !!python/object/apply:os.mkdir ['{mark}']")
    assert read.problems == ("description is not text",)
    assert not mark.exists()


def test_text_that_hides_something_is_told() -> None:
    read = manifest("name: tidy\ndescription: d", "Do it.\u200bAnd this.")
    assert (read.problems, len(read.notes)) == ((), 1)


@settings(max_examples=examples(100), deadline=None)
@given(raw=st.binary(max_size=400) | st.text(max_size=400).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_of_any_kind_are_read_without_a_fault(raw: bytes) -> None:
    for whole in (raw, b"---\n" + raw + b"\n---\nx", b"---\nname: tidy\ndescription: d\n" + raw + b"\n---\nx"):
        read = read_manifest(whole, "tidy")
        assert all(problem.isprintable() for problem in (*read.problems, *read.notes))
        if not read.problems:
            assert 1 <= len(read.description) <= DESCRIPTION_LENGTH_MAX


yaml_pieces = st.sampled_from(
    ["name", "description", "allowed-tools", ": ", "\n", "  ", "- ", "[", "]", "{", "}", ",", "&a ", "*a", "!!int ", "!!set ",
     "? ", "| ", "> ", "'", '"', "#", "1e999", "2026-99-99", "0o9", ".nan", "~", "<<", "%YAML 1.1", "---", "...", "tidy", "\t"]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(pieces=st.lists(yaml_pieces, max_size=30))
def test_yaml_of_any_kind_is_read_without_a_fault(pieces: list[str]) -> None:
    read_manifest(f"---\n{''.join(pieces)}\n---\nx".encode(), "tidy")


@pytest.mark.parametrize(
    ("text", "patterns", "unknown"),
    [
        ("fs.read fs.list", ("fs.read", "fs.list"), ()),
        ("Read, Write,Edit", ("fs.read", "fs.write", "fs.patch"), ()),
        ("grep Glob LS", ("fs.search", "fs.list"), ()),
        ("Bash Bash(git log:*) Bash(*)", ("shell.run",), ()),
        ("WebFetch WebSearch", ("http.fetch",), ("WebSearch",)),
        (
            "mcp.github.* mcp__github__create_issue mcp__jira",
            ("mcp.github.*", "mcp.github.create_issue", "mcp.jira.*"),
            (),
        ),
        ("wasm.plugin.fn *", ("wasm.plugin.fn", "*"), ()),
        ("Nonsense(x y) fs.[rw]ead ../x", (), ("Nonsense(x y)", "fs.[rw]ead", "../x")),
        ("", (), ()),
    ],
)
def test_names_of_tools_mean_ours_or_nothing(text: str, patterns: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    meant = understand(split_names(text))
    assert (meant.patterns, meant.unknown) == (patterns, unknown)


def test_restriction_that_is_not_kept_is_told() -> None:
    read = manifest("name: tidy\ndescription: d\nallowed-tools: Bash(git:*) Read")
    assert read.allowed_tools == ("shell.run", "fs.read")
    assert "Bash(git:*)" in read.notes[0]


@given(text=st.text())
def test_any_line_of_names_gives_patterns_that_match_plainly(text: str) -> None:
    for pattern in understand(split_names(text)).patterns:
        assert "[" not in pattern
        assert "(" not in pattern


def test_table_of_foreign_names_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "skills.md").read_text().casefold()
    assert [name for name in FOREIGN if f"`{name}`" not in page] == []


# --- Places and walls


def test_skill_of_the_home_is_the_operators_and_active(skills: FolderSkills, home: Path) -> None:
    write_skill(home, "tidy", notes="x")
    card = one(skills)
    assert (card.name, card.description, card.trust, card.status) == (
        "tidy", "Does tidy.", Trust.OPERATOR, SkillStatus.ACTIVE,
    )  # fmt: skip
    assert [file.path for file in card.files] == ["SKILL.md", "notes"]
    assert skills.offered(()) == (card,)
    assert skills.read(wish("tidy")).text == "# How\n\nDo it."


def test_home_hides_the_bundle_and_both_hide_the_workspace(
    skills: FolderSkills, home: Path, workspace: Path, tmp_path: Path
) -> None:
    for base in (home, tmp_path / "bundle", workspace):
        write_skill(base, "tidy")
    cards = skills.cards((str(workspace),))
    assert [(card.place.value, card.can_open) for card in cards] == [
        ("home", True), ("bundled", False), ("workspace", False),
    ]  # fmt: skip
    assert skills.read(wish("tidy", workspace)).card.place is SkillPlace.HOME
    skills.mark(wish("tidy", workspace, SkillPlace.WORKSPACE), SkillStatus.ACTIVE)
    assert [card.place.value for card in skills.offered((str(workspace),))] == ["home"]


def test_hiding_one_is_not_undone_by_disabling_what_hides_it(skills: FolderSkills, home: Path, tmp_path: Path) -> None:
    write_skill(home, "tidy")
    write_skill(tmp_path / "bundle", "tidy")
    skills.mark(wish("tidy"), SkillStatus.DISABLED)
    assert skills.offered(()) == ()
    assert not skills.read(wish("tidy")).card.can_open


def test_every_bundled_skill_can_be_used_and_read_at_once(home: Path) -> None:
    shelf = FolderSkills(home)
    cards = shelf.cards(())
    assert {path.name for path in BUNDLED.iterdir()} == {card.name for card in cards}
    for card in cards:
        assert (card.problem, card.notes, card.unknown_tools) == (None, (), ())
        assert card.allowed_tools
        assert len(shelf.read(wish(card.name)).text.encode()) < OUTPUT_INLINE_BYTES_MAX - 512


def test_no_skill_takes_more_than_a_link_to_it(skills: FolderSkills, home: Path, tmp_path: Path) -> None:
    outside = write_skill(tmp_path / "elsewhere", "tidy")
    (home / "skills").mkdir(parents=True)
    (home / "skills" / "tidy").symlink_to(outside)
    card = one(skills)
    assert "symbolic link" in str(card.problem)
    assert (skills.offered(()), skills.read(wish("tidy")).text) == ((), "")


@pytest.mark.parametrize("where", ["SKILL.md", "references/secret"])
def test_link_inside_breaks_the_whole_skill(skills: FolderSkills, workspace: Path, tmp_path: Path, where: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(TEXT.format(name="tidy"))
    folder = write_skill(workspace, "tidy")
    (folder / where).parent.mkdir(exist_ok=True)
    (folder / where).unlink(missing_ok=True)
    (folder / where).symlink_to(secret)
    assert "symbolic link" in str(one(skills, workspace).problem)
    with pytest.raises(NotFound):
        skills.read_file(wish("tidy", workspace), where)


def test_workspace_folder_of_skills_that_is_a_link_holds_nothing(
    skills: FolderSkills, workspace: Path, tmp_path: Path
) -> None:
    write_skill(tmp_path / "elsewhere", "tidy")
    (workspace / "skills").symlink_to(tmp_path / "elsewhere" / "skills")
    assert skills.cards((str(workspace),)) == ()
    with pytest.raises(NotFound):
        skills.read(wish("tidy", workspace))


@pytest.mark.parametrize(("name", "looks_count"), [("a", 1), ("references", 1), ("references", 2)])
def test_link_put_there_between_looking_and_opening_leads_nowhere(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, looks_count: int
) -> None:
    skills = FolderSkills(tmp_path / "home", tmp_path / "none")
    folder = write_skill(workspace, "tidy", a="x")
    (folder / "references").mkdir()
    (folder / "references" / "b").write_text("x")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b").write_text("SECRET")
    look, looks = os.stat, []

    def look_then_swap(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        found = look(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        looks.extend([path] if path == name and dir_fd is not None else [])
        if len(looks) == looks_count and not os.path.islink(folder / name):
            (folder / name).rename(tmp_path / "away")
            (folder / name).symlink_to(secret if name == "references" else secret / "b")
        return found

    monkeypatch.setattr(os, "stat", look_then_swap)
    assert skills.read(wish("tidy", workspace)).card.problem is not None
    assert os.path.islink(folder / name)


def test_pipe_is_refused_and_holds_nobody(skills: FolderSkills, home: Path) -> None:
    os.mkfifo(write_skill(home, "tidy") / "pipe")
    assert "pipe" in str(one(skills).problem)


@pytest.mark.parametrize("name", ["../tidy", "a/b", "", ".", "..", "TIDY", "a" * 65, "tidy\x00"])
def test_name_that_is_no_name_finds_nothing(skills: FolderSkills, home: Path, name: str) -> None:
    write_skill(home, "tidy")
    with pytest.raises(NotFound):
        skills.read(wish(name))


@pytest.mark.parametrize("path", ["../tidy/SKILL.md", "/etc/passwd", "notes/", "gone", "", "./notes", ".git/config"])
def test_file_outside_the_list_is_not_there(skills: FolderSkills, home: Path, path: str) -> None:
    folder = write_skill(home, "tidy", notes="x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    with pytest.raises(NotFound):
        skills.read_file(wish("tidy"), path)
    assert [file.path for file in one(skills).files] == ["SKILL.md", "notes"]


def test_limits_of_a_folder(skills: FolderSkills, home: Path) -> None:
    folder = write_skill(home, "tidy")
    for number in range(FILES_MAX - 1):
        (folder / f"f{number}").touch()
    assert one(skills).problem is None
    (folder / "one-more").touch()
    assert str(FILES_MAX) in str(one(skills).problem)


def test_empty_folders_of_a_folder(skills: FolderSkills, home: Path) -> None:
    """A skill is looked through before each turn. A hundred thousand empty folders would take seconds each time."""
    folder = write_skill(home, "tidy")
    for number in range(FOLDERS_MAX):
        (folder / f"d{number}").mkdir()
    assert one(skills).problem is None
    (folder / "d0" / "one-more").mkdir()
    assert f"{FOLDERS_MAX} folders" in str(one(skills).problem)


def test_depth_of_a_folder(skills: FolderSkills, home: Path) -> None:
    deep = write_skill(home, "tidy").joinpath(*["d"] * DEPTH_MAX)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    assert one(skills).problem is None
    (deep / "d").mkdir()
    assert "nested" in str(one(skills).problem)


def test_size_of_a_folder(skills: FolderSkills, home: Path) -> None:
    folder = write_skill(home, "tidy")
    room = FOLDER_BYTES_MAX - (folder / "SKILL.md").stat().st_size
    (folder / "big").write_bytes(bytes(room))
    assert one(skills).problem is None
    (folder / "big").write_bytes(bytes(room + 1))
    assert str(FOLDER_BYTES_MAX) in str(one(skills).problem)


def test_only_text_of_a_page_is_shown(skills: FolderSkills, home: Path) -> None:
    folder = write_skill(home, "tidy")
    for name, body in (("fits", b"x" * FILE_SHOWN_BYTES_MAX), ("large", b"x" * (FILE_SHOWN_BYTES_MAX + 1))):
        (folder / name).write_bytes(body)
    (folder / "binary").write_bytes(b"a\x00b")
    (folder / "latin").write_bytes(b"\xe9")
    assert len(skills.read_file(wish("tidy"), "fits").text) == FILE_SHOWN_BYTES_MAX
    for name, code in (("large", "file_too_large"), ("binary", "binary_file"), ("latin", "binary_file")):
        with pytest.raises(Invalid) as caught:
            skills.read_file(wish("tidy"), name)
        assert caught.value.code == code


def test_change_is_seen_the_next_time(skills: FolderSkills, home: Path) -> None:
    folder = write_skill(home, "tidy")
    before = skills.offered(())
    assert skills.offered(()) == before
    (folder / "SKILL.md").write_text("---\nname: tidy\ndescription: Another.\n---\nx\n")
    assert [card.description for card in skills.offered(())] == ["Another."]
    (folder / "SKILL.md").unlink()
    assert (skills.offered(()), one(skills).problem) == ((), "there is no SKILL.md in it")


def test_folder_for_something_else_in_a_workspace_is_no_skill(skills: FolderSkills, workspace: Path) -> None:
    (workspace / "skills" / "cooking").mkdir(parents=True)
    (workspace / "skills" / "README.md").touch()
    assert skills.cards((str(workspace),)) == ()


def test_strangers_skill_in_an_earlier_workspace_is_not_offered_in_the_words_of_an_accepted_one(
    skills: FolderSkills, tmp_path: Path
) -> None:
    roots = (str(tmp_path / "one"), str(tmp_path / "two"))
    write_skill(tmp_path / "two", "tidy")
    skills.mark(SkillWish(name="tidy", workspace=roots), SkillStatus.ACTIVE)
    assert [card.root for card in skills.offered(roots)] == [roots[1]]
    write_skill(tmp_path / "one", "tidy")
    assert skills.offered(roots) == ()
    assert skills.read(SkillWish(name="tidy", workspace=roots)).card.trust is Trust.EXTERNAL


def test_workspace_that_cannot_be_read_takes_no_other_skill_away(
    skills: FolderSkills, home: Path, workspace: Path
) -> None:
    write_skill(home, "tidy")
    (workspace / "skills").write_text("a file")
    roots = (str(workspace), str(workspace / "gone"), str(workspace / "skills"), "/" + "x" * 300)
    assert [card.name for card in skills.cards(roots)] == ["tidy"]
    assert [card.name for card in skills.offered(roots)] == ["tidy"]


def test_what_cannot_be_listed_is_told_and_offers_nothing(home: Path) -> None:
    shelf = FolderSkills(Path("/" + "x" * 300), home)
    assert shelf.offered(()) == ()
    with pytest.raises(Unavailable):
        shelf.cards(())


# --- Marks


def test_workspace_skill_is_a_strangers_until_it_is_accepted(skills: FolderSkills, workspace: Path) -> None:
    write_skill(workspace, "tidy")
    before = one(skills, workspace)
    assert (before.trust, before.status, before.can_open) == (Trust.EXTERNAL, SkillStatus.QUARANTINED, True)
    assert skills.offered((str(workspace),)) == ()
    after = skills.mark(wish("tidy", workspace), SkillStatus.ACTIVE, before.sha256)
    assert (after.trust, after.status) == (Trust.OPERATOR, SkillStatus.ACTIVE)
    assert skills.offered((str(workspace),)) == (after,)


@pytest.mark.parametrize("change", ["text", "same_length", "new_file", "renamed", "moved_bytes"])
def test_accepted_skill_that_changes_is_a_strangers_again(skills: FolderSkills, workspace: Path, change: str) -> None:
    folder = write_skill(workspace, "tidy", a="one", b="two")
    skills.mark(wish("tidy", workspace), SkillStatus.ACTIVE)
    match change:
        case "text":
            (folder / "SKILL.md").write_text(TEXT.format(name="tidy") + "And this.\n")
        case "same_length":
            status = (folder / "a").stat()
            (folder / "a").write_text("ONE")
            os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
        case "new_file":
            (folder / ".hidden").touch()
        case "renamed":
            (folder / "a").rename(folder / "c")
        case _:
            (folder / "a").write_text("onet")
            (folder / "b").write_text("wo")
    for card in (one(skills, workspace), skills.read(wish("tidy", workspace)).card):
        assert (card.trust, card.status) == (Trust.EXTERNAL, SkillStatus.QUARANTINED)
        assert "it has changed since it was accepted" in card.notes
    assert skills.offered((str(workspace),)) == ()


def test_opening_looks_at_the_bytes_and_not_at_what_is_remembered(skills: FolderSkills, workspace: Path) -> None:
    folder = write_skill(workspace, "tidy", a="one")
    skills.mark(wish("tidy", workspace), SkillStatus.ACTIVE)
    skills.offered((str(workspace),))
    for stamp, looked in skills._known.values():
        assert stamp
        assert looked.content is None
    (folder / "a").write_text("ONE")
    # As if the change had been too quick for the stamps.
    with_old = {key: (_stamp(folder), looked) for key, (_, looked) in skills._known.items()}
    skills._known = with_old
    assert skills.read(wish("tidy", workspace)).card.trust is Trust.EXTERNAL


def _stamp(folder: Path) -> tuple[tuple[str, int, int, int, int], ...]:
    statuses = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    return tuple((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in statuses)


def test_acceptance_is_of_one_workspace_alone(skills: FolderSkills, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_skill(tmp_path / name, "tidy")
    skills.mark(wish("tidy", tmp_path / "one"), SkillStatus.ACTIVE)
    assert one(skills, tmp_path / "two").trust is Trust.EXTERNAL


@pytest.mark.parametrize("status", [SkillStatus.DISABLED, SkillStatus.QUARANTINED])
def test_skill_that_was_put_away_stays_so_whatever_it_becomes(
    skills: FolderSkills, workspace: Path, home: Path, status: SkillStatus
) -> None:
    folder = write_skill(workspace, "tidy")
    skills.mark(wish("tidy", workspace), status)
    (folder / "SKILL.md").write_text(TEXT.format(name="tidy") + "And this.\n")
    card = one(FolderSkills(home, folder), workspace)
    assert (card.status, card.can_open, card.trust) == (status, False, Trust.EXTERNAL)


def test_status_of_a_home_skill_lasts_and_can_be_taken_back(skills: FolderSkills, home: Path, tmp_path: Path) -> None:
    write_skill(home, "tidy")
    skills.mark(wish("tidy"), SkillStatus.DISABLED)
    again = FolderSkills(home, tmp_path / "none")
    assert (again.offered(()), one(again).status) == ((), SkillStatus.DISABLED)
    assert again.mark(wish("tidy"), SkillStatus.ACTIVE).can_open
    assert [card.name for card in skills.offered(())] == ["tidy"]


def test_what_was_not_looked_at_is_not_accepted(skills: FolderSkills, workspace: Path, home: Path) -> None:
    folder = write_skill(workspace, "tidy")
    seen = one(skills, workspace).sha256
    (folder / "more").write_text("x")
    with pytest.raises(Conflict):
        skills.mark(wish("tidy", workspace), SkillStatus.ACTIVE, seen)
    assert not (home / "skills.json").exists()


def test_broken_skill_is_not_accepted(skills: FolderSkills, home: Path) -> None:
    write_skill(home, "tidy", "no front matter")
    with pytest.raises(Conflict) as caught:
        skills.mark(wish("tidy"), SkillStatus.ACTIVE)
    assert caught.value.code == "skill_broken"
    assert skills.mark(wish("tidy"), SkillStatus.DISABLED).status is SkillStatus.DISABLED


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"marks": [{"name": 1}]}', b'{"marks": [], "x": 1}', b"\xff"])
def test_damaged_marks_offer_nothing_and_are_never_overwritten(skills: FolderSkills, home: Path, damage: bytes) -> None:
    write_skill(home, "tidy")
    (home / "skills.json").write_bytes(damage)
    assert skills.offered(()) == ()
    for act in (lambda: skills.cards(()), lambda: skills.read(wish("tidy"))):
        with pytest.raises(Corrupt):
            act()
    with pytest.raises(Corrupt):
        skills.mark(wish("tidy"), SkillStatus.DISABLED)
    assert (home / "skills.json").read_bytes() == damage
    (home / "skills.json").unlink()
    assert len(skills.offered(())) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.core.skills import SkillStatus
from palyra.ports.skills import SkillWish

home, step = Path(sys.argv[1]), sys.argv[2]
owner, name = {"fsync": (os, "fsync"), "replace": (Path, "replace"), "write": (os, "fdopen")}[step]
setattr(owner, name, lambda *_a, **_k: os.kill(os.getpid(), signal.SIGKILL))
FolderSkills(home, home / "none").mark(SkillWish(name="tidy"), SkillStatus.DISABLED)
"""


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_killed_while_marking_leaves_the_old_file_whole(skills: FolderSkills, home: Path, step: str) -> None:
    write_skill(home, "tidy")
    write_skill(home, "other")
    skills.mark(wish("other"), SkillStatus.QUARANTINED)
    before = (home / "skills.json").read_bytes()
    ended = subprocess.run([sys.executable, "-c", KILLED, str(home), step], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (home / "skills.json").read_bytes() == before
    # The lock went with the process: nobody waits for it.
    assert skills.mark(wish("tidy"), SkillStatus.DISABLED).status is SkillStatus.DISABLED
    assert {card.name: card.status.value for card in skills.cards(())} == {"other": "quarantined", "tidy": "disabled"}


def test_marks_set_at_the_same_time_are_all_kept(home: Path, tmp_path: Path) -> None:
    names = [f"skill-{number}" for number in range(8)]
    for name in names:
        write_skill(home, name)
    shelves = [FolderSkills(home, tmp_path / "none") for _ in names]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda shelf, name: shelf.mark(wish(name), SkillStatus.DISABLED), shelves, names))
    assert {card.status for card in shelves[0].cards(())} == {SkillStatus.DISABLED}


def test_file_of_marks_is_the_operators_alone(skills: FolderSkills, home: Path) -> None:
    write_skill(home, "tidy")
    skills.mark(wish("tidy"), SkillStatus.DISABLED)
    assert (home / "skills.json").stat().st_mode & 0o777 == 0o600


# --- skill.open


async def test_opening_gives_the_text_its_files_and_what_it_leaves(skills: FolderSkills, home: Path) -> None:
    text = "---\nname: tidy\ndescription: d\nallowed-tools: Read Nonsense\n---\nDo it.\n"
    write_skill(home, "tidy", text, notes="Note well.")
    result = await execute(SkillOpen(skills), {"name": "tidy"})
    assert (result.outcome, result.trust, result.source) == (Outcome.OK, Trust.OPERATOR, None)
    assert result.output.endswith("\n\nDo it.")
    assert "leaves: fs.read." in result.output
    assert "notes (10 bytes)" in result.output
    assert result.skill is not None
    assert (result.skill.name, result.skill.allowed_tools) == ("tidy", ("fs.read",))
    file = await execute(SkillOpen(skills), {"name": "tidy", "file": "./notes"})
    assert (file.output.endswith("Note well."), file.skill, file.trust) == (True, result.skill, Trust.OPERATOR)


async def test_strangers_skill_is_opened_as_one(skills: FolderSkills, workspace: Path) -> None:
    write_skill(workspace, "tidy", notes="x")
    result = await execute(SkillOpen(skills), {"name": "tidy"}, workspace)
    assert (result.trust, result.source) == (Trust.EXTERNAL, "skill:tidy")
    assert result.skill is not None
    assert result.skill.name == "unaccepted:tidy"
    assert "in skills/tidy." in result.output


async def test_accepted_skill_of_a_workspace_is_vouched_for(skills: FolderSkills, workspace: Path) -> None:
    write_skill(workspace, "tidy")
    skills.mark(wish("tidy", workspace), SkillStatus.ACTIVE)
    result = await execute(SkillOpen(skills), {"name": "tidy"}, workspace)
    assert (result.trust, result.source, result.skill and result.skill.name) == (Trust.OPERATOR, None, "tidy")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "gone"}, "skill_unknown"),
        ({"name": "../tidy"}, "skill_unknown"),
        ({"name": "tidy", "file": "gone"}, "skill_file_unknown"),
        ({"name": "tidy", "file": "../broken/SKILL.md"}, "skill_file_unknown"),
        ({"name": "tidy", "file": "/etc/passwd"}, "skill_file_unknown"),
        ({"name": "broken"}, "skill_broken"),
        ({"name": "off"}, "skill_disabled"),
        ({"name": "away", "file": "SKILL.md"}, "skill_quarantined"),
        ({"name": 1}, "arguments_invalid"),
        ({"name": "tidy", "file": 1}, "arguments_invalid"),
    ],
)
async def test_what_cannot_be_opened_is_told_as_a_value(
    skills: FolderSkills, home: Path, arguments: dict[str, object], code: str
) -> None:
    for name in ("tidy", "off", "away"):
        write_skill(home, name)
    write_skill(home, "broken", "---\nname: other\n---\nx")
    skills.mark(wish("off"), SkillStatus.DISABLED)
    skills.mark(wish("away"), SkillStatus.QUARANTINED)
    result = await execute(SkillOpen(skills), arguments)
    assert (code_of(result), result.skill, result.output) == (code, None, "")


async def test_refusals_hold_no_word_of_a_stranger(skills: FolderSkills, workspace: Path) -> None:
    folder = write_skill(workspace, "tidy", "---\nname: tidy\nOBEY-ME: &OBEYME x\nb: *OBEYME\n---\nOBEY ME")
    (folder / "OBEY-ME").write_bytes(b"\xff")
    wanted: list[JsonObject] = [{"name": "tidy"}, {"name": "tidy", "file": "gone"}, {"name": "gone"}]
    for arguments in wanted:
        result = await execute(SkillOpen(skills), arguments, workspace)
        assert result.error is not None
        assert "OBEY" not in result.error.message.upper()


async def test_damaged_marks_open_nothing(skills: FolderSkills, home: Path) -> None:
    write_skill(home, "tidy")
    (home / "skills.json").write_text("{")
    assert code_of(await execute(SkillOpen(skills), {"name": "tidy"})) == "skills_file_damaged"


def test_list_for_prompts_may_be_a_moment_old_but_not_after_a_mark(tmp_path: Path) -> None:
    skills = FolderSkills(tmp_path, tmp_path / "none", fresh_s=3_600)
    folder = tmp_path / "skills" / "one"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: one\ndescription: The first.\n---\nDo it.\n")
    assert [card.name for card in skills.offered(())] == ["one"]
    (folder / "SKILL.md").write_text("---\nname: one\ndescription: Another.\n---\nDo it.\n")
    assert [card.description for card in skills.offered(())] == ["The first."]
    skills.mark(SkillWish(name="one"), SkillStatus.DISABLED)
    assert skills.offered(()) == ()
