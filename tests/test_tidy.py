"""The style holds everywhere, and the checker that says so finds what it should. There is no list of waivers."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.graph import check_classes_unique, check_cycles, check_module_nouns
from tests.tidy.imports import check_imports, check_one_sqlite
from tests.tidy.shape import (
    FUNCTION_LINES_MAX,
    MODULE_LINES_MAX,
    check_shape,
)
from tests.tidy.source import Fault, Source, parse, read_sources
from tests.tidy.words import BROAD_EXCEPT_PLACES, check_words

ROOT = Path(__file__).parents[1]
Check = Callable[[Source], list[Fault]]


@cache
def package() -> list[Source]:
    return read_sources(ROOT / "src", ROOT / "src")


@pytest.mark.parametrize("check", [check_shape, check_words, check_imports])
def test_package_keeps_the_style(check: Check) -> None:
    assert [str(fault) for source in package() for fault in check(source)] == []


@pytest.mark.parametrize("check", [check_classes_unique, check_module_nouns, check_cycles])
def test_package_keeps_the_style_as_a_whole(check: Callable[[Iterable[Source]], list[Fault]]) -> None:
    assert [str(fault) for fault in check(package())] == []


@pytest.mark.parametrize(
    ("check", "modules"),
    [
        (check_classes_unique, {"palyra.a": "class Answer: ...", "palyra.b": "class Answer: ..."}),
        (check_module_nouns, {"palyra.a.drawing": "x = 1"}),
        (check_cycles, {"palyra.a": "def f():\n from palyra.b import g", "palyra.b": "import palyra.a"}),
        (
            check_cycles,
            {
                "palyra.a": "from palyra.b import B",
                "palyra.b": "from palyra.c import C",
                "palyra.c": "if TYPE_CHECKING:\n from palyra import a",
            },
        ),
    ],
)
def test_checker_finds_a_fault_of_the_whole(
    check: Callable[[Iterable[Source]], list[Fault]], modules: dict[str, str]
) -> None:
    assert check([parse(module, body) for module, body in modules.items()]) != []


def test_checker_lets_a_sound_whole_pass() -> None:
    sources = [parse("palyra.routing", "from palyra.b import B\nclass A: ..."), parse("palyra.b", "class _A: ...")]
    assert [
        fault for check in (check_classes_unique, check_module_nouns, check_cycles) for fault in check(sources)
    ] == []


def test_tests_and_benchmarks_load_one_sqlite_and_leave_nothing_unfinished() -> None:
    folders = ("tests", "bench", "examples", ".ci")
    beside = (source for folder in folders for source in read_sources(ROOT / folder, ROOT))
    found = [fault for source in beside for fault in (*check_one_sqlite(source), *check_words(source))]
    assert [str(fault) for fault in found if fault.rule in ("one_sqlite", "unfinished")] == []


def test_package_was_found() -> None:
    modules = {source.module for source in package()}
    assert {"palyra", "palyra.core.ids", "palyra.ports.journal"} <= modules


def test_places_of_broad_except_are_known_and_exist() -> None:
    """The edges of requests and of messages, the tool runner, and the writer's thread, which supervises all commits."""
    modules = tuple(source.module for source in package())
    assert len(BROAD_EXCEPT_PLACES) <= 4
    assert all(place.startswith(modules) for place in BROAD_EXCEPT_PLACES)


def rules_broken(check: Check, module: str, body: str) -> list[str]:
    return [fault.rule for fault in check(parse(module, body))]


def documented(body: str) -> str:
    return f'"""A module."""\n{body}'


SHAPE_FAULTS = {
    "module_docstring": "x = 1\n",
    "module_lines": documented("x = 1\n" * MODULE_LINES_MAX),
    "function_lines": documented("def f() -> None:\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    "parameters": documented("def f(a, b, c, d, *, e, f, g): ...\n"),
    "nesting": documented("def f():\n if a:\n  for b in c:\n   with d:\n    try:\n     e()\n    finally:\n     g()\n"),
}


@pytest.mark.parametrize("rule", SHAPE_FAULTS)
def test_checker_finds_a_fault_of_shape(rule: str) -> None:
    assert rules_broken(check_shape, "palyra.engine.bad", SHAPE_FAULTS[rule]) == [rule]


@pytest.mark.parametrize(
    "body",
    [
        "def f(self, a, b, c, d, e, g): ...\n",
        "def f():\n if a:\n  b()\n elif c:\n  d()\n elif e:\n  g()\n elif h:\n  i()\n elif j:\n  k()\n",
        "def f():\n if a:\n  for b in c:\n   match d:\n    case 1:\n     e()\n",
        "def f():\n if a:\n  for b in c:\n   with d:\n    def g():\n     if h:\n      i()\n",
        "class Record:\n" + "".join(f"    field_{number}: int\n" for number in range(30)),
        "class A:\n" + "".join(f"    def m{number}(self): ...\n" for number in range(30)),
    ],
    ids=["self", "elif", "match", "inner_function", "fields", "methods"],
)
def test_checker_lets_sound_shapes_pass(body: str) -> None:
    assert rules_broken(check_shape, "palyra.engine.good", documented(body)) == []


def test_an_if_inside_an_else_is_deeper_than_an_elif() -> None:
    body = (
        "def f():\n if a:\n  b()\n else:\n  if c:\n   d()\n  else:\n   if e:\n    g()\n   else:\n    if h:\n     i()\n"
    )
    assert rules_broken(check_shape, "palyra.engine.bad", documented(body)) == ["nesting"]


@pytest.mark.parametrize(
    "decorator", ["@app.command()", "@app.callback(invoke_without_command=True)", "@group.command"]
)
def test_options_of_commands_do_not_count_as_parameters(decorator: str) -> None:
    body = documented(f"{decorator}\ndef f(a, b, c, d, e, f, g): ...\n")
    assert rules_broken(check_shape, "palyra.cli.commands.verify", body) == []
    assert rules_broken(check_shape, "palyra.engine.verify", body) == ["parameters"]


@pytest.mark.parametrize(
    "body",
    [
        "class RunManager: ...",
        "class HelperOfRuns: ...",
        "def handle_event(): ...",
        "async def _process_event(): ...",
        "def f(run_info): ...",
        "common = 1",
        "class A:\n def f(self):\n  self.utils = 1",
    ],
)
def test_checker_finds_banned_names(body: str) -> None:
    assert rules_broken(check_words, "palyra.engine.bad", body) == ["banned_name"]


def test_checker_finds_a_banned_module_name() -> None:
    assert rules_broken(check_words, "palyra.core.utils", "x = 1") == ["banned_name"]


@pytest.mark.parametrize("body", ["log.info(1)", "process_group = 1", "def manage(): ...", "def inform(): ..."])
def test_checker_lets_names_of_others_and_nouns_pass(body: str) -> None:
    assert rules_broken(check_words, "palyra.engine.good", body) == []


@pytest.mark.parametrize(
    "body",
    [
        "try:\n a()\nexcept Exception:\n b()",
        "try:\n a()\nexcept:\n b()",
        "try:\n a()\nexcept (ValueError, BaseException) as e:\n b()",
        "with contextlib.suppress(Exception):\n a()",
    ],
)
def test_checker_finds_a_broad_except(body: str) -> None:
    assert rules_broken(check_words, "palyra.engine.bad", body) == ["broad_except"]


@pytest.mark.parametrize("mark", ["TO" + "DO", "FIX" + "ME", "XX" + "X"])
def test_checker_finds_unfinished_work(mark: str) -> None:
    assert rules_broken(check_words, "palyra.engine.bad", f"x = 1  # {mark} later") == ["unfinished"]


@pytest.mark.parametrize(
    ("module", "body", "rules"),
    [
        ("palyra.core.a", "import asyncio", ["impure_core"]),
        ("palyra.core.a", "def f():\n from os import path", ["impure_core"]),
        ("palyra.core.a", "datetime.now(zone)", ["impure_core"]),
        ("palyra.core.a", "from urllib import request", ["impure_core"]),
        ("palyra.core.a", "open('x')", ["impure_core"]),
        ("palyra.core.a", "import apsw", ["foreign_package"]),
        ("palyra.core.a", "from palyra.ports.clock import Clock", ["arrow"]),
        ("palyra.core.a", "from palyra import app", ["arrow"]),
        ("palyra.core.a.b", "from ...ports import clock", ["arrow"]),
        ("palyra.ports.a", "import apsw", ["foreign_package"]),
        ("palyra.ports.a", "from palyra.engine.session.gate import Gate", ["arrow"]),
        ("palyra.engine.a", "from palyra.adapters.net.client import Client", ["arrow"]),
        ("palyra.engine.a", "from palyra.gateway.http import serve", ["arrow"]),
        ("palyra.gateway.a", "import palyra.adapters.store.sqlite", ["arrow"]),
        ("palyra.gateway.a", "import palyra.app", ["arrow"]),
        ("palyra.adapters.store.a", "from palyra.engine.session.gate import Gate", ["arrow"]),
        ("palyra.adapters.store.a", "from palyra.adapters.providers.b import B", ["adapters_apart"]),
        ("palyra.adapters.store.a", "from palyra.adapters import providers", ["adapters_apart"]),
        ("palyra.adapters.files.a", "from palyra.adapters.store.b import B", ["adapters_apart"]),
        ("palyra.cli.a", "from palyra.adapters.store import sqlite", ["arrow"]),
        ("palyra.cli.a", "from palyra.engine.session.gate import Gate", ["arrow"]),
        ("palyra.app", "from palyra.cli.main import main", ["arrow"]),
        ("palyra.config", "from palyra.app import open_journal", ["arrow"]),
        ("palyra.extras.a", "import json", ["unknown_layer"]),
        ("palyra", "from palyra.core import ids", ["arrow"]),
        ("palyra.__main__", "from palyra.app import open_journal", ["arrow"]),
        ("palyra.app", "import sqlite3", ["one_sqlite"]),
        ("palyra.app", "from sqlite3 import connect", ["one_sqlite"]),
    ],
)
def test_checker_finds_a_wrong_import(module: str, body: str, rules: list[str]) -> None:
    assert rules_broken(check_imports, module, body) == rules


@pytest.mark.parametrize(
    ("module", "body"),
    [
        ("palyra.core.a", "import hashlib\nimport msgspec\nfrom palyra.core.ids import RunId"),
        ("palyra.core.a", "from datetime import datetime\nfrom urllib.parse import urlsplit"),
        ("palyra.ports.a", "from palyra.core.events import Event"),
        ("palyra.engine.a", "import asyncio\nfrom palyra.ports.journal import Journal"),
        ("palyra.adapters.store.sqlite.a", "import apsw\nfrom palyra.adapters.store.sqlite.b import c"),
        ("palyra.adapters.providers.a", "from palyra.adapters.net.client import Client"),
        ("palyra.adapters.vault.a", "from palyra.adapters.files.private import PrivateFile"),
        ("palyra.app", "from palyra.adapters.store.sqlite.journal import SqliteJournal"),
        ("palyra.__main__", "from palyra.cli.main import main"),
        ("palyra.cli.a", "from palyra import __version__\nfrom palyra.app import open_journal"),
    ],
)
def test_checker_lets_imports_along_the_arrows_pass(module: str, body: str) -> None:
    assert rules_broken(check_imports, module, body) == []
