"""Adds a channel to a home: tries its secrets at the platform, then stores them and writes the section.

Owns: that nothing is stored or written before the platform accepted the secrets.
Does not own: asking the person (cli), adapters (app.channels).
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from palyra.adapters.clock import SystemClock
from palyra.adapters.extras import install_command
from palyra.adapters.net.client import HttpClient
from palyra.app import Home, now_ms
from palyra.app.channels import make_adapter
from palyra.app.logs import log_beside_results
from palyra.app.secrets import AskSecret, checked_name, open_vault
from palyra.config import FILE_NAME, SecretRef, load, read_config
from palyra.config.records import ChannelConfig
from palyra.core.channels.model import ChannelKind
from palyra.core.errors import Conflict, Invalid, Unavailable
from palyra.ports.channels import ChannelCheck

CHECK_S = 20.0
EXTRA_PACKAGES = {ChannelKind.DISCORD: "discord", ChannelKind.SLACK: "slack_sdk"}


class _GivenSecrets:
    """The secrets that a person just gave, by their names in the vault."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def source(self, reference: SecretRef | None) -> AskSecret:
        return lambda: None if reference is None else self._values.get(reference.name)


def add_channel(home: Home, name: str, section: str, values: Mapping[str, str]) -> ChannelCheck:
    """Adds the `[[channel]]` that `section` holds, and returns what trying it found.

    `values` are the secrets that it refers to, by name. Conflict if there is such a channel already.
    """
    if not all(value.strip() for value in values.values()):
        raise Invalid("nothing_given", "a secret is empty; nothing was changed")
    channel = require_addable(home, name, section)
    log_beside_results()
    found = asyncio.run(_check(channel, values))
    vault = open_vault(home)
    for each, value in values.items():
        vault.set(checked_name(each), value, now_ms())
    path = (home.root / FILE_NAME).resolve()
    _replace(path, _extended(path, section))
    return found


def check_extra(kind: ChannelKind) -> None:
    """Raises Unavailable if the package that this platform needs is not installed."""
    package = EXTRA_PACKAGES.get(kind)
    if package is not None and find_spec(package) is None:
        command = install_command(f"palyra[{kind.value}]")
        raise Unavailable("extra_missing", f"{kind.value} needs another package; run {command}")


def require_addable(home: Home, name: str, section: str) -> ChannelConfig:
    """Returns the channel that `section` would make. Refuses a name that is taken, or is none."""
    if any(channel.name == name for channel in load(home.root, os.environ).channels):
        message = f"palyra.toml has a channel {name} already; choose another name, or edit its section"
        raise Conflict("channel_exists", message, is_retryable=False)
    return _section(_extended(home.root / FILE_NAME, section), name)


async def _check(channel: ChannelConfig, values: Mapping[str, str]) -> ChannelCheck:
    client = HttpClient()
    try:
        async with asyncio.timeout(CHECK_S):
            return await make_adapter(channel, _GivenSecrets(values), client, SystemClock(), b"").check()
    except TimeoutError as cause:
        raise Unavailable("channel_silent", f"the platform did not answer in {CHECK_S:.0f} s") from cause
    finally:
        await client.close()


def _section(text: str, name: str) -> ChannelConfig:
    found = read_config(text, {}, FILE_NAME)
    channels = [] if isinstance(found, tuple) else [each for each in found.channels if each.name == name]
    if not channels:
        raise Invalid("channel_invalid", f"{name} cannot be a channel's name, or a setting of it is wrong")
    return channels[0]


def _extended(path: Path, section: str) -> str:
    with suppress(FileNotFoundError):
        known = path.read_text("utf-8")
        return f"{known.rstrip()}\n\n{section}\n" if known.strip() else f"{section}\n"
    return f"{section}\n"


def _replace(path: Path, text: str) -> None:
    """Writes beside and renames, so that a full disk leaves the old file. Who may read it stays."""
    beside = path.with_name(f"{path.name}.new")
    beside.touch(0o600)
    with suppress(FileNotFoundError):
        beside.chmod(path.stat().st_mode & 0o777)
    beside.write_text(text, "utf-8")
    beside.replace(path)
