"""Channels as palyra.toml wires them: rules, adapters, and who may answer by the bundled policies."""

from pathlib import Path

import pytest

from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.app import Home
from palyra.app.channels import answers_by_policy, make_channels, origins_max
from palyra.app.secrets import SecretSources
from palyra.config import Config, read_config
from palyra.config.example import EXAMPLE
from palyra.core.ids import Principal

ALICE, TEAM = Principal("user:alice"), Principal("channel:team")


def config() -> Config:
    found = read_config(EXAMPLE, {}, "palyra.toml")
    assert isinstance(found, Config)
    return found


def test_every_kind_of_the_example_has_its_adapter_without_its_library(tmp_path: Path) -> None:
    secrets = SecretSources(Home(tmp_path), {})
    made = {each.rules.name: each for each in make_channels(config(), secrets, HttpClient(), SystemClock(), b"key")}
    assert {name: each.adapter.traits.kind.value for name, each in made.items()} == {
        "team": "slack", "tickets": "webhook", "phone": "telegram", "mail": "email", "guild": "discord",
    }  # fmt: skip
    assert (made["team"].rules.coalesce_ms, made["tickets"].rules.coalesce_ms) == (300, 0)
    assert made["tickets"].adapter.traits.can_send
    assert origins_max(config())["slack:team"] == 4


@pytest.mark.parametrize(
    ("role", "own", "others"),
    [
        ("viewer", False, False),
        ("user", True, False),
        ("operator", True, True),
        ("admin", True, True),
        ("x", False, False),
    ],
)
def test_the_bundled_policies_decide_who_may_answer(role: str, own: bool, others: bool) -> None:
    may_answer = answers_by_policy(CedarPolicy())
    assert (may_answer(ALICE, role, ALICE), may_answer(ALICE, role, TEAM)) == (own, others)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mapping = { txt = "a" }', "a message has no such field"),
        ('kind = "slack"', "needs the key token"),
    ],
)
def test_what_a_channel_cannot_be_is_told_with_its_line(text: str, told: str) -> None:
    base = '[[channel]]\nname = "a"\n' + ("" if "kind" in text else 'kind = "webhook"\nsecret = "env:X"\n')
    found = read_config(f"{base}{text}\n", {}, "palyra.toml")
    assert not isinstance(found, Config)
    assert any(told in problem.what for problem in found)


def test_a_routine_needs_a_channel_with_a_conversation() -> None:
    routine = '[[routine]]\nname = "r"\nprompt = "go"\nevery_s = 5\nchannel = "a"\n'
    hook = '[[channel]]\nname = "a"\nkind = "webhook"\nsecret = "env:X"\n'
    refused = read_config(hook + routine, {}, "palyra.toml")
    assert not isinstance(refused, Config)
    assert "names no conversation" in refused[0].what
    assert isinstance(read_config(f'{hook}conversation = "c"\n{routine}', {}, "palyra.toml"), Config)
