"""fs.search: lines as ripgrep finds them, ignore files as git reads them, and a search that can always be ended."""

import asyncio
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from palyra.adapters.files.ignore import IgnoreRules
from palyra.adapters.tools import fs_search, search_child
from palyra.adapters.tools.fs_search import LINE_LENGTH_MAX, MATCHES_MAX, FsSearch
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from palyra.core.tools import ToolResult
from tests.support.tool_calls import code_of, execute
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


async def search(root: Path, pattern: str, **more: str) -> ToolResult:
    arguments: JsonObject = {"pattern": pattern, **more}
    return await execute(FsSearch(), arguments, root)


async def found(root: Path, pattern: str, **more: str) -> list[str]:
    result = await search(root, pattern, **more)
    assert (result.outcome, result.error) == (Outcome.OK, None)
    return result.output.split("\n")


def make(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


async def test_lines_are_found_in_order_with_path_and_number_and_the_files_hash(tmp_path: Path) -> None:
    make(tmp_path, {"b.txt": "x\nfoo 1\n", "a/z.txt": "foo\nbar\nfoo", "c.txt": "bar"})
    result = await search(tmp_path, "fo+")
    assert result.output == "a/z.txt:1:foo\na/z.txt:3:foo\nb.txt:2:foo 1"
    assert [(file.path, file.sha256) for file in result.read] == [
        ("a/z.txt", hashlib.sha256(b"foo\nbar\nfoo").hexdigest()),
        ("b.txt", hashlib.sha256(b"x\nfoo 1\n").hexdigest()),
    ]
    assert {file.root for file in result.read} == {os.path.realpath(tmp_path)}


async def test_a_match_lies_in_one_line_and_anchors_are_the_lines(tmp_path: Path) -> None:
    make(tmp_path, {"f": "foo\nbar\n\nfoo bar\n"})
    assert await found(tmp_path, r"foo\s+bar") == ["f:4:foo bar"]
    assert await found(tmp_path, "^bar$") == ["f:2:bar"]
    assert await found(tmp_path, "^$") == ["f:3:"]
    assert await found(tmp_path, "(?s)o.b") == ["f:4:foo bar"]
    assert await found(tmp_path, "x*") == ["f:1:foo", "f:2:bar", "f:3:", "f:4:foo bar"]
    assert await found(tmp_path, "nothing") == ["[No match in 1 file.]"]


async def test_letters_beyond_ascii_and_bytes_that_are_no_text_are_searched(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("čau Ž\n".encode() + b"caf\xe9 au\r\n")
    assert await found(tmp_path, "(?i)č.u ž") == ["f:1:čau Ž"]
    assert await found(tmp_path, "caf") == ["f:2:caf� au"]


async def test_hidden_binary_and_linked_files_are_skipped(tmp_path: Path) -> None:
    make(tmp_path, {".hidden": "x", ".git/config": "x", "seen": "x"})
    (tmp_path / "binary").write_bytes(b"x\x00")
    (tmp_path / "link").symlink_to("seen")
    os.mkfifo(tmp_path / "pipe")
    assert await found(tmp_path, "x") == ["seen:1:x"]
    assert await found(tmp_path, "x", path=".hidden") == [".hidden:1:x"]
    assert await found(tmp_path, "x", path=".git") == [".git/config:1:x"]


async def test_ignore_files_count_also_from_above_and_a_named_path_is_searched_all_the_same(tmp_path: Path) -> None:
    make(tmp_path, {".gitignore": "*.log\nbuild/\n", "a.log": "x", "build/f": "x", "src/b.log": "x", "src/c": "x"})
    make(tmp_path, {"src/.gitignore": "!b.log\n"})
    assert await found(tmp_path, "x") == ["src/b.log:1:x", "src/c:1:x"]
    assert await found(tmp_path, "x", path="build") == ["build/f:1:x"]
    assert await found(tmp_path, "x", path="a.log") == ["a.log:1:x"]
    make(tmp_path, {".ignore": "src/c\n!a.log\n"})
    assert await found(tmp_path, "x") == ["a.log:1:x", "src/b.log:1:x"]
    (tmp_path / "src" / ".git").mkdir()
    make(tmp_path, {"src/d.log": "x"})
    assert "src/d.log:1:x" in await found(tmp_path, "x")


async def test_glob_picks_files_or_leaves_them_out(tmp_path: Path) -> None:
    make(tmp_path, {"a.py": "x", "a.ts": "x", "src/b.py": "x", "src/deep/c.tsx": "x"})
    assert await found(tmp_path, "x", glob="*.py") == ["a.py:1:x", "src/b.py:1:x"]
    assert await found(tmp_path, "x", glob="*.{ts,tsx}") == ["a.ts:1:x", "src/deep/c.tsx:1:x"]
    assert await found(tmp_path, "x", glob="src/**") == ["src/b.py:1:x", "src/deep/c.tsx:1:x"]
    assert await found(tmp_path, "x", glob="src") == ["src/b.py:1:x", "src/deep/c.tsx:1:x"]
    assert await found(tmp_path, "x", glob="!src/") == ["a.py:1:x", "a.ts:1:x"]
    assert await found(tmp_path, "x", glob="deep/*", path="src") == ["src/deep/c.tsx:1:x"]
    assert await found(tmp_path, "x", glob="[") == ["[No match in 0 files.]"]


async def test_as_many_matches_as_the_limit_are_whole_and_one_more_is_told(tmp_path: Path) -> None:
    make(tmp_path, {"f": "x\n" * MATCHES_MAX})
    assert len(await found(tmp_path, "x")) == MATCHES_MAX
    make(tmp_path, {"f": "x\n" * (MATCHES_MAX + 1)})
    lines = await found(tmp_path, "x")
    assert (len(lines), lines[-1].startswith(f"[Stopped after {MATCHES_MAX} matches")) == (MATCHES_MAX + 1, True)


async def test_long_lines_are_cut_around_the_match_and_output_is_bounded(tmp_path: Path) -> None:
    make(tmp_path, {"f": "a" * 5000 + "needle" + "b" * 5000 + "\n"})
    (line,) = await found(tmp_path, "needle")
    assert "needle" in line
    assert len(line) < LINE_LENGTH_MAX + 60
    make(tmp_path, {"f": ("é" * 5000 + "\n") * 1000})
    result = await search(tmp_path, "é")
    assert len(result.output.encode()) <= fs_search.OUTPUT_BYTES_MAX + 1024
    assert "there are more" in result.output


async def test_file_larger_than_a_chunk_is_searched_to_its_end_and_hashed_whole(tmp_path: Path) -> None:
    line = b"0123456789abcde\n"
    body = line * (search_child.CHUNK_BYTES // len(line) * 2) + b"needle\n" + line * 10 + b"needle"
    (tmp_path / "large").write_bytes(body)
    result = await search(tmp_path, "needle")
    number = body.count(b"\n", 0, body.index(b"needle")) + 1
    assert result.output == f"large:{number}:needle\nlarge:{number + 11}:needle"
    assert result.read[0].sha256 == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", "(", "a{5000}", "*"])
async def test_pattern_that_the_engine_has_not_is_refused_in_words(tmp_path: Path, pattern: str) -> None:
    result = await search(tmp_path, pattern)
    assert code_of(result) == "pattern_invalid"
    assert result.error is not None
    assert "RE2" in result.error.message


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("..", "outside_workspace"),
        ("no", "not_found"),
        ("link", "symlink_refused"),
        ("link/x", "symlink_refused"),
        ("pipe", "not_a_file"),
        ("f/x", "not_a_folder"),
    ],
)
async def test_path_that_cannot_be_searched_is_refused(tmp_path: Path, path: str, code: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "f").touch()
    os.mkfifo(tmp_path / "pipe")
    assert code_of(await search(tmp_path, "x", path=path)) == code


async def test_pattern_that_backtracks_forever_elsewhere_is_answered(tmp_path: Path) -> None:
    make(tmp_path, {"f": "a" * 50_000 + "\n"})
    assert await found(tmp_path, "(a+)+$x|(a|a)*b") == ["[No match in 1 file.]"]


async def test_ignore_rule_that_backtracks_forever_elsewhere_is_answered(tmp_path: Path) -> None:
    make(tmp_path, {".gitignore": "*a" * 60 + "*b\n", "a" * 200: "x"})
    assert await found(tmp_path, "x") == ["a" * 200 + ":1:x"]


def children() -> set[int]:
    """Searching processes of ours that are there."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    return {int(line.split()[0]) for line in listed.stdout.splitlines() if fs_search.CHILD in line}


async def test_cancelled_search_kills_its_process(tmp_path: Path) -> None:
    """It reads a file whose end it will not reach."""
    make(tmp_path, {"f": "x"})
    vast = tmp_path / "vast"
    vast.write_bytes(b"y\n" * search_child.BINARY_LOOK_BYTES)
    os.truncate(vast, 1 << 42)
    task = asyncio.create_task(search(tmp_path, "nothing like it"))
    await until(children)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not children())


async def test_search_whose_process_dies_is_a_failure_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_search, "CHILD", "palyra.no_such_module")
    assert code_of(await search(tmp_path, "x")) == "search_stopped"


names = st.text(alphabet="ab.!# \\[]*?-", min_size=1, max_size=4).filter(lambda name: name not in (".", "..", ".git"))
rules = st.lists(
    st.one_of(
        st.text(alphabet="ab.*?[]!#/\\- ^\r", max_size=8),
        st.lists(
            st.sampled_from(["*", "**", "a", "b", "ab", "/", "?", "[ab]", "[!a]", "[[:alpha:]]", "\\", " "]), max_size=6
        ).map("".join),
    ),
    max_size=4,
).map("\n".join)
TABLE = [
    (
        "a",
        "/a",
        "a/",
        "*/a",
        "**/a",
        "a/**",
        "a/**/b",
        "a**/b",
        "/a**",
        "*a",
        "a*",
        "[a-b]",
        "[!a]",
        "[]a]",
        "[a",
        "a\\",
    ),
    (
        "\\!a",
        "!a",
        "\\#a",
        "#a",
        "a ",
        "a\\ ",
        "a\\\\ ",
        "\ta",
        "a\r",
        "//a",
        "a//",
        "/",
        "!",
        "**",
        "***",
        "?",
        "[[:alpha:]]b",
    ),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def grow(root: Path, paths: list[list[str]], is_more: bool = False) -> None:
    """Files with these paths, where none of them is in another's way."""
    for entry in [] if is_more else [entry for entry in root.iterdir() if entry.name != ".git"]:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for parts in paths:
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            root.joinpath(*parts).parent.mkdir(parents=True, exist_ok=True)
            root.joinpath(*parts).touch()


def entries(root: Path) -> list[bytes]:
    """Every path, of folders with a slash at the end."""
    below = [path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".git"]
    return [os.fsencode(path.relative_to(root)) + (b"/" if path.is_dir() else b"") for path in below]


def ignored(rules: list[tuple[bytes, IgnoreRules]], root: Path) -> set[bytes]:
    return {path.removesuffix(b"/") for path in entries(root) if is_ignored(rules, path)}


def ask_git(root: Path) -> set[bytes]:
    asked = b"".join(path.removesuffix(b"/") + b"\0" for path in entries(root))
    command = [
        "git",
        "-c",
        "core.excludesFile=/dev/null",
        "-C",
        str(root),
        "check-ignore",
        "--no-index",
        "-z",
        "--stdin",
    ]
    answer = subprocess.run(command, input=asked, capture_output=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return set(answer.stdout.split(b"\0")) - {b""}


def is_ignored(rules: list[tuple[bytes, IgnoreRules]], path: bytes) -> bool:
    """As the walk asks: first the folders above, then the path; the deepest file's word counts."""
    ends = [*(at + 1 for at, letter in enumerate(path[:-1]) if letter == ord("/")), len(path)]
    for end in ends:
        verdicts = [
            each.verdict(path[len(base) : end]) for base, each in rules if path.startswith(base) and len(base) < end
        ]
        if next((verdict for verdict in reversed(verdicts) if verdict is not None), False):
            return True
    return False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules, rules, st.lists(st.lists(names, min_size=1, max_size=3), min_size=1, max_size=8))
@example("\n".join(TABLE[0]), "", [["a"], ["b"], ["a", "b"], ["a", "a", "b"], ["ab"], ["b", "a"], ["]"], ["ab", "b"]])
@example("\n".join(TABLE[1]), "", [["!a"], ["#a"], ["a "], ["a"], ["a\\"], ["a\\ "], ["b"], ["ab"]])
@example("*\n!a\n!*/", "!b", [["a"], ["b"], ["b", "a"], ["a", "b"]])
@example("a**/b", "", [["ab"], ["a", "b"], ["aa", "b"], ["a", "a", "b"]])
def test_rules_are_those_of_git(repository: Path, above: str, below: str, paths: list[list[str]]) -> None:
    grow(repository, [["a", ".gitignore"], *paths])
    (repository / ".gitignore").write_bytes(above.encode())
    (repository / "a" / ".gitignore").write_bytes(below.encode())
    mine = [(b"", IgnoreRules(above.encode())), (b"a/", IgnoreRules(below.encode()))]
    assert ignored(mine, repository) == ask_git(repository)


def test_rules_are_those_of_git_one_by_one(repository: Path) -> None:
    """Each rule alone, so that none hides behind another."""
    grow(
        repository,
        [path.split("/") for path in ("b", "ab", "a/b", "a/a/b", "a/c/d", "a ", "!a", "#a", "c/a", "]", "-")],
    )
    grow(
        repository,
        [path.split("/") for path in ("a\\", "aab/b", "a/ab", "1", "a-b", "a/d/b/c", "\ta", "a\r")],
        is_more=True,
    )
    more = [
        "[[:digit:]-b]",
        "[a-]",
        "[--b]",
        "[\\]]",
        "[[:nope:]]",
        "[[:a]",
        "a/*",
        "a/*/b",
        "\\a",
        "*/",
        "a/",
        "c/**",
        "**/a/b",
    ]
    for rule in [*TABLE[0], *TABLE[1], *more]:
        (repository / ".gitignore").write_bytes(rule.encode())
        assert (rule, ignored([(b"", IgnoreRules(rule.encode()))], repository)) == (rule, ask_git(repository))
