"""Adding a channel by the guided command: tried at the platform first, then stored and written."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palyra.app import Home
from palyra.app.channel_setup import add_channel, require_addable
from palyra.app.secrets import open_vault
from palyra.cli.commands.channel_steps import GUIDES
from palyra.cli.main import app
from palyra.config import load
from palyra.core.channels.model import ChannelKind
from palyra.core.errors import Conflict, Invalid, Unavailable
from tests.support.telegram import TOKEN, telegram_server

GUIDE = GUIDES[ChannelKind.TELEGRAM]


async def test_a_token_that_the_platform_knows_is_stored_and_the_section_is_written(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text("[run]\nparallel_tools = 2\n# kept\n")
    async with telegram_server() as server:
        section = GUIDE.section("team", server.url)
        found = await asyncio.to_thread(add_channel, Home(tmp_path), "team", section, {"team_token": TOKEN})
        assert found.known_as == "@palyra_bot"
        with pytest.raises(Conflict, match="channel_exists"):
            await asyncio.to_thread(add_channel, Home(tmp_path), "team", section, {"team_token": TOKEN})
    config = load(tmp_path, {})
    assert [(each.name, each.kind) for each in config.channels] == [("team", ChannelKind.TELEGRAM)]
    assert config.run.parallel_tools == 2
    assert "# kept" in (tmp_path / "palyra.toml").read_text()
    assert open_vault(Home(tmp_path)).get("team_token") == TOKEN


async def test_a_token_that_the_platform_refuses_leaves_nothing(tmp_path: Path) -> None:
    async with telegram_server() as server:
        section = GUIDE.section("team", server.url)
        with pytest.raises(Unavailable, match="token_refused"):
            await asyncio.to_thread(add_channel, Home(tmp_path), "team", section, {"team_token": "1:guess"})
    assert not (tmp_path / "palyra.toml").exists()
    assert open_vault(Home(tmp_path)).rows() == ()


@pytest.mark.parametrize("kind", [ChannelKind.DISCORD, ChannelKind.SLACK])
def test_a_missing_package_is_told_before_anything_is_asked(
    kind: ChannelKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.app.channel_setup.find_spec", lambda name: None)
    monkeypatch.setattr("palyra.app.passphrases.is_terminal", lambda: True)
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "channels", "add", kind.value, "team"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"install 'palyra[{kind.value}]'" in done.stderr


def test_a_taken_name_is_told_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "palyra.toml").write_text(f"{GUIDE.section('team')}\n")
    monkeypatch.setattr("palyra.app.passphrases.is_terminal", lambda: True)
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "channels", "add", "telegram", "team"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "channel_exists" in done.stderr


def test_a_name_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="channel_invalid"):
        add_channel(Home(tmp_path), 'a"b', GUIDE.section('a"b'), {})


def test_what_cannot_be_added_is_known_before_secrets_are_asked_for(tmp_path: Path) -> None:
    require_addable(Home(tmp_path), "team", GUIDE.section("team"))
    with pytest.raises(Invalid, match="channel_invalid"):
        require_addable(Home(tmp_path), "My team", GUIDE.section("My team"))
    (tmp_path / "palyra.toml").write_text(GUIDE.section("team"))
    with pytest.raises(Conflict, match="channel_exists"):
        require_addable(Home(tmp_path), "team", GUIDE.section("team"))


def test_an_empty_secret_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nothing_given"):
        add_channel(Home(tmp_path), "team", GUIDE.section("team"), {"team_token": " "})


async def test_the_file_keeps_its_mode_and_stays_the_link_that_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    real = tmp_path / "kept" / "palyra.toml"
    real.parent.mkdir()
    real.write_text("# kept\n")
    real.chmod(0o600)
    (tmp_path / "home" / "palyra.toml").symlink_to(real)
    async with telegram_server() as server:
        section = GUIDE.section("team", server.url)
        await asyncio.to_thread(add_channel, Home(tmp_path / "home"), "team", section, {"team_token": TOKEN})
    assert (tmp_path / "home" / "palyra.toml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert "team" in real.read_text()


@pytest.mark.parametrize("kind", list(ChannelKind))
def test_the_section_that_is_shown_is_a_valid_configuration(kind: ChannelKind, tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text(GUIDES[kind].section("team"))
    assert [each.kind for each in load(tmp_path, {}).channels] == [kind]
