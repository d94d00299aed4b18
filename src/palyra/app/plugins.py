"""Wires plugins: a home's plugins for a daemon, and installing, listing and removing them without one.

Does not own: plugins themselves (adapters.runtimes.wasm).
A running daemon notices changes of the folder by itself.
"""

import asyncio
from pathlib import Path

import msgspec

from palyra.adapters.runtimes.wasm.install import PluginCandidate, put_in_place, read_candidate, take_away
from palyra.adapters.runtimes.wasm.manifest import PluginManifest
from palyra.adapters.runtimes.wasm.runtime import PluginCall, WasmRuntime
from palyra.adapters.runtimes.wasm.source import PluginTools
from palyra.adapters.schema import JsonSchemaCheck
from palyra.app import Home
from palyra.core.tools import MissingTool

FOLDER = "plugins"


class PluginRow(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as lists show it."""

    name: str
    version: str
    description: str
    sha256: str
    capabilities: tuple[str, ...]
    fuel: int
    memory_mib: int
    timeout_s: float
    functions: tuple[dict[str, str], ...]


class PluginList(msgspec.Struct, frozen=True):
    rows: tuple[PluginRow, ...]
    broken: tuple[MissingTool, ...]


def plugin_tools(home: Home) -> PluginTools:
    """Returns the plugins as a source of tools for a daemon."""
    return PluginTools(plugins_folder(home), JsonSchemaCheck().schema_errors)


def plugins_folder(home: Home) -> Path:
    return home.root / FOLDER


def list_plugins(home: Home) -> PluginList:
    source = plugin_tools(home)
    rows = tuple(make_row(plugin.manifest, plugin.sha256) for plugin in source.plugins())
    return PluginList(rows, source.missing())


def look_at(path: Path) -> PluginCandidate:
    """Reads, compiles and instantiates the plugin once, with nothing but what it asks for.

    Raises an error that names everything that is wrong.
    """
    candidate = read_candidate(path, JsonSchemaCheck().schema_errors)
    asyncio.run(_try_out(candidate))
    return candidate


def install(home: Home, candidate: PluginCandidate, is_replacing: bool) -> None:
    put_in_place(candidate, plugins_folder(home), is_replacing)


def remove(home: Home, name: str) -> None:
    take_away(name, plugins_folder(home))


def make_row(manifest: PluginManifest, sha256: str) -> PluginRow:
    return PluginRow(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        sha256=sha256,
        capabilities=tuple(sorted(grant.value for grant in manifest.capabilities)),
        fuel=manifest.limits.fuel,
        memory_mib=manifest.limits.memory_mib,
        timeout_s=manifest.limits.timeout_s,
        functions=tuple(
            {"name": each.name, "effect_class": each.effect_class.value, "description": each.description}
            for each in manifest.function
        ),
    )


async def _try_out(candidate: PluginCandidate) -> None:
    runtime = WasmRuntime()
    asked = PluginCall(manifest=candidate.manifest, sha256=candidate.sha256, function=None, question=b"")
    try:
        await runtime.call(asked, candidate.read_wasm, lambda _text: None)
    finally:
        runtime.close()
