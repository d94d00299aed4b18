"""Wires MCP servers without a daemon: asks one for its tools, and accepts, adds and removes servers.

Does not own: servers and what was accepted (adapters.runtimes.mcp), the text of palyra.toml (config.section_text).
A running daemon notices by itself what was accepted. It reads palyra.toml only when it starts.
"""

import asyncio
import os
from functools import partial

import msgspec

from palyra.adapters.files.durable import replace_whole
from palyra.adapters.runtimes.mcp.acceptances import Acceptances
from palyra.adapters.runtimes.mcp.connection import Connection
from palyra.adapters.runtimes.mcp.definitions import (
    TOOLS_MAX,
    Definition,
    LeftOut,
    effect_of,
    read_definitions,
    version_of,
)
from palyra.adapters.runtimes.mcp.failures import ConnectionLost
from palyra.adapters.runtimes.mcp.pages import list_all
from palyra.adapters.runtimes.mcp.server import told
from palyra.adapters.runtimes.mcp.settings import START_TIMEOUT_S, ServerSettings
from palyra.adapters.schema import JsonSchemaCheck
from palyra.app import Home
from palyra.app.logs import log_beside_results
from palyra.app.secrets import SecretSources, open_sources
from palyra.config import FILE_NAME, Config, ConfigInvalid, load, read_config
from palyra.config.records import McpServerConfig
from palyra.config.section_text import Value, with_section, without_section
from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.spelling import spell_out

FILE = "mcp-accepted.json"


class McpToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as its server describes it now. `status` is accepted, changed or new."""

    name: str
    status: str
    effect_class: str
    description: str
    input_schema: dict[str, object]
    version: str


class McpServerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One configured server, and how many of its tools were accepted."""

    name: str
    address: str
    accepted_count: int


class McpLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of its tools, and what cannot be offered of it."""

    server: str
    tools: tuple[McpToolRow, ...]
    left_out: tuple[str, ...]


def list_servers(home: Home) -> tuple[McpServerRow, ...]:
    accepted = _acceptances(home)
    return tuple(
        McpServerRow(name=each.name, address=_address(each), accepted_count=accepted.count(each.name))
        for each in load(home.root, os.environ).mcp_servers
    )


def look_at_configured(home: Home, name: str) -> McpLook:
    """Asks a server of palyra.toml for its tools."""
    config = load(home.root, os.environ)
    section = next((each for each in config.mcp_servers if each.name == name), None)
    if section is None:
        known = ", ".join(each.name for each in config.mcp_servers) or "none"
        raise NotFound("mcp_unknown", f"there is no [[mcp]] named {name}; there are: {known}")
    return _look(home, section, open_sources(home, config))


def look_at_new(home: Home, values: dict[str, Value]) -> McpLook:
    """Asks a server for its tools that is not in palyra.toml yet. Raises ConfigInvalid, or Conflict for a known name."""
    config, section = _read_with(home, values)
    return _look(home, section, open_sources(home, config))


def accept(home: Home, look: McpLook) -> None:
    _acceptances(home).accept(look.server, {each.name: each.version for each in look.tools})


def add(home: Home, values: dict[str, Value], look: McpLook) -> None:
    """Writes the section, then accepts what was shown of it."""
    _read_with(home, values)
    _write(home, with_section(_text(home), "mcp", values))
    accept(home, look)


def remove(home: Home, name: str) -> None:
    """Removes the section, and forgets what was accepted of it."""
    if name not in {each.name for each in load(home.root, os.environ).mcp_servers}:
        raise NotFound("mcp_unknown", f"there is no [[mcp]] named {name}; see palyra mcp list")
    _write(home, without_section(_text(home), "mcp", name))
    _acceptances(home).accept(name, {})


def server_settings(section: McpServerConfig, secrets: SecretSources) -> ServerSettings:
    return ServerSettings(
        name=section.name,
        command=section.command or (),
        url=section.url,
        env=partial(secrets.fill_in, section.env),
        token=secrets.source(section.token),
        trust_annotations=section.trust_annotations,
        read_only=section.read_only,
        idempotent=section.idempotent,
        timeout_s=section.timeout_s,
    )


def _look(home: Home, section: McpServerConfig, secrets: SecretSources) -> McpLook:
    log_beside_results()
    settings = server_settings(section, secrets)
    definitions, left_out = read_definitions(asyncio.run(_listed(settings)), JsonSchemaCheck())
    accepted = _acceptances(home)
    rows = tuple(_row(each, settings, accepted.version(section.name, each.name)) for each in definitions)
    return McpLook(server=section.name, tools=rows, left_out=tuple(map(_words, left_out)))


async def _listed(settings: ServerSettings) -> list[object]:
    """Connects once, and ends the connection after the list."""
    found: list[object] = []

    async def attend(connection: Connection) -> None:
        if connection.terms.offers("tools"):
            limit_s = settings.timeouts.request_s
            found.extend(await list_all(connection, "tools/list", "tools", TOOLS_MAX, limit_s))

    task = asyncio.create_task(Connection(settings).run(attend))
    done, _ = await asyncio.wait({task}, timeout=START_TIMEOUT_S)
    if not done:
        task.cancel()
        await asyncio.wait({task})
        raise Unavailable("mcp_silent", f"{settings.name} did not answer within {START_TIMEOUT_S:g} s")
    error = task.exception()
    if error is not None and not (isinstance(error, ConnectionLost) and found):
        message = f"{settings.name} could not be asked for its tools: {told(error, settings)}"
        raise Unavailable("mcp_failed", message) from error
    return found


def _row(definition: Definition, settings: ServerSettings, accepted: str | None) -> McpToolRow:
    version = version_of(definition, settings)
    status = "new" if accepted is None else "accepted" if accepted == version else "changed"
    return McpToolRow(
        name=definition.name,
        status=status,
        effect_class=effect_of(definition, settings).value,
        description=definition.description,
        input_schema=definition.input_schema,
        version=version,
    )


def _words(left_out: LeftOut) -> str:
    return f"{spell_out(left_out.name)}: {left_out.reason}"


def _read_with(home: Home, values: dict[str, Value]) -> tuple[Config, McpServerConfig]:
    name = values["name"]
    if name in {each.name for each in load(home.root, os.environ).mcp_servers}:
        raise Conflict("mcp_exists", f"there is an [[mcp]] named {name} already; palyra mcp remove {name} removes it")
    found = read_config(with_section(_text(home), "mcp", values), os.environ, FILE_NAME)
    if not isinstance(found, Config):
        raise ConfigInvalid(found)
    return found, found.mcp_servers[-1]


def _text(home: Home) -> str:
    path = home.root / FILE_NAME
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(home: Home, text: str) -> None:
    path = (home.root / FILE_NAME).resolve()
    found = read_config(text, os.environ, str(path))
    if not isinstance(found, Config):
        raise Invalid("config_broken", "palyra.toml would not be valid any more; change it by hand")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, text.encode())
    except OSError as cause:
        raise Unavailable("config_unwritable", f"{path} could not be written ({cause.strerror})") from cause


def _acceptances(home: Home) -> Acceptances:
    found = Acceptances(home.root / FILE)
    found.refresh()
    return found


def _address(section: McpServerConfig) -> str:
    return section.url or " ".join(section.command or ())
