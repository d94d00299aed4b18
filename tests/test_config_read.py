"""Settings are read by something, and what cannot be chosen is refused with what to write instead."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields
from typer.testing import CliRunner

from palyra.cli.main import app
from palyra.config import Config, read_config
from palyra.config.records import ProviderConfig, Section, plain_sections, repeated_sections
from palyra.config.references import CHAT_SERVERS, PROVIDER_KINDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "palyra"
SECTIONS: dict[str, type[Section]] = {**plain_sections(), **repeated_sections()}
HOLDERS = ("config", "_config")
MEMBERS = {field.encode_name: field.name for field in fields(Config)}


def attributes() -> Iterator[ast.Attribute]:
    """Every `a.b` of the package outside its configuration."""
    for path in PACKAGE.rglob("*.py"):
        if PACKAGE / "config" not in path.parents:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def test_every_section_and_each_of_its_keys_is_read() -> None:
    used_names, used_sections = set(), set()
    for node in attributes():
        used_names.add(node.attr)
        of = node.value
        if (of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else "") in HOLDERS:
            used_sections.add(node.attr)
    assert {MEMBERS[name] for name in SECTIONS} - used_sections == set()
    keys = {(name, field.name) for name, section in SECTIONS.items() for field in fields(section)}
    assert {key for key in keys if key[1] not in used_names} == set()


def test_check_tells_what_would_stop_the_start(tmp_path: Path) -> None:
    file = tmp_path / "palyra.toml"
    file.write_text('[server]\nhttp = "0.0.0.0:1"\n[[agent]]\nname = "a"\nworkspace = ["/"]\n')
    checked = CliRunner().invoke(app, ["--home", str(tmp_path), "config", "check"])
    assert checked.exit_code == 1
    assert "can be reached from other machines without TLS" in checked.output
    assert "would open" in checked.output
    assert checked.output.splitlines()[-1] == "2 problems"


@pytest.mark.parametrize("url", ["postgresql://h/d", "postgres://u:p@h/d"])
def test_a_journal_in_postgresql_is_refused_as_not_there_yet(url: str) -> None:
    found = read_config(f'[journal]\nurl = "{url}"\n', {}, "palyra.toml")
    assert not isinstance(found, Config)
    assert "PostgreSQL is not there yet" in found[0].what


@pytest.mark.parametrize("path", ["other.db", "/srv/journal.db", "~/journal.db", "with spaces.db", ""])
def test_a_journal_elsewhere_is_refused_and_told_how_to_move_the_home(path: str) -> None:
    found = read_config(f'[journal]\nurl = "sqlite:{path}"\n', {}, "palyra.toml")
    assert not isinstance(found, Config)
    assert "PALYRA_HOME or --home moves" in found[0].what


def test_kinds_that_are_servers_are_told_what_to_write_all_at_once() -> None:
    tables = [f'[[provider]]\nname = "p{number}"\nkind = "{kind}"\n' for number, kind in enumerate(CHAT_SERVERS)]
    found = read_config("".join(tables) + '[[provider]]\nname = "z"\nkind = "zzz"\n', {}, "palyra.toml")
    assert not isinstance(found, Config)
    told = [problem.what for problem in found if problem.what.startswith("there is no such kind")]
    words = 'there is no such kind; write kind = "openai-chat" and base_url = "{}"'
    assert told[:-1] == [words.format(url) for url in CHAT_SERVERS.values()]
    assert told[-1] == f"there is no such kind; use one of {', '.join(PROVIDER_KINDS)}"


@pytest.mark.parametrize("url", sorted(set(CHAT_SERVERS.values())))
def test_what_is_told_can_be_written(url: str) -> None:
    text = f'[[provider]]\nname = "p"\nkind = "openai-chat"\nbase_url = "{url}"\n'
    config = read_config(text, {}, "palyra.toml")
    assert isinstance(config, Config)
    assert config.providers == (ProviderConfig(name="p", kind="openai-chat", base_url=url),)
