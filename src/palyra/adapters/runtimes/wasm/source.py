"""The plugins of a home as a source of tools; notices plugins that came, went or changed.

Does not own: installing them (install).
The folder is read when somebody asks for tools, at most once in LOOK_EVERY_S. An unchanged plugin stays the same
object.
"""

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from palyra.adapters.runtimes.wasm.manifest import SchemaErrors
from palyra.adapters.runtimes.wasm.plugin_folder import MANIFEST_NAME, Plugin, open_manifest, open_plugin
from palyra.adapters.runtimes.wasm.runtime import WasmRuntime
from palyra.adapters.runtimes.wasm.tool import PluginTool, tool_name
from palyra.core.errors import PalyraError
from palyra.core.tools import MissingTool
from palyra.ports.services import ServiceHealth
from palyra.ports.tools import Tool

LOOK_EVERY_S = 1.0
PLUGINS_MAX = 64

Look = tuple[tuple[str, int, int, int], ...]


class _FoundPlugin(msgspec.Struct, frozen=True):
    look: Look
    plugin: Plugin | None
    tools: tuple[Tool, ...]
    missing: tuple[MissingTool, ...]


class PluginTools:
    """`folder` holds a folder for each plugin; it need not exist. `clock_s` counts seconds."""

    def __init__(
        self, folder: Path, schema_errors: SchemaErrors, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._schema_errors = schema_errors
        self._clock_s = clock_s
        self._runtime = WasmRuntime()
        self._found: dict[str, _FoundPlugin] = {}
        self._tools: tuple[Tool, ...] = ()
        self._missing: tuple[MissingTool, ...] = ()
        self._looked_at_s = float("-inf")

    def tools(self) -> tuple[Tool, ...]:
        self._refresh()
        return self._tools

    def missing(self) -> tuple[MissingTool, ...]:
        self._refresh()
        return self._missing

    def plugins(self) -> tuple[Plugin, ...]:
        """Returns the usable plugins, in order."""
        self._refresh()
        return tuple(each.plugin for each in self._found.values() if each.plugin is not None)

    def close(self) -> None:
        self._runtime.close()

    def health(self) -> ServiceHealth:
        return self._runtime.health()

    def _refresh(self) -> None:
        now_s = self._clock_s()
        if now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        names = _names(self._folder)
        looks = {name: _look(self._folder / name) for name in names[:PLUGINS_MAX]}
        over = tuple(
            MissingTool(f"wasm.{name}", f"there are more than {PLUGINS_MAX} plugins; remove some")
            for name in names[PLUGINS_MAX:]
        )
        is_same = {name: each.look for name, each in self._found.items()} == looks
        if is_same and len(over) == sum(each in over for each in self._missing):
            return
        self._found = {name: self._find(name, look) for name, look in looks.items()}
        self._tools = tuple(tool for each in self._found.values() for tool in each.tools)
        self._missing = (*(missing for each in self._found.values() for missing in each.missing), *over)

    def _find(self, name: str, look: Look) -> _FoundPlugin:
        known = self._found.get(name)
        if known is not None and known.look == look:
            return known
        folder = self._folder / name
        try:
            plugin = open_plugin(folder, self._schema_errors)
        except PalyraError as refused:
            return _FoundPlugin(look, None, (), self._explain(folder, refused.message))
        except OSError as cause:
            return _FoundPlugin(look, None, (), self._explain(folder, f"it cannot be read: {cause.strerror}"))
        if find_spec("wasmtime") is None:
            return _FoundPlugin(
                look, plugin, (), self._explain(folder, "the package wasmtime is not installed; add it")
            )
        tools = tuple(PluginTool(plugin, function, self._runtime) for function in plugin.manifest.function)
        return _FoundPlugin(look, plugin, tools, ())

    def _explain(self, folder: Path, reason: str) -> tuple[MissingTool, ...]:
        """Returns the missing tools by name if the manifest can be read, so that whoever calls one is told."""
        try:
            manifest = open_manifest(folder, self._schema_errors)
        except (PalyraError, OSError):
            return (MissingTool(f"wasm.{folder.name}", reason),)
        return tuple(MissingTool(tool_name(folder.name, function.name), reason) for function in manifest.function)


def _names(folder: Path) -> list[str]:
    """Returns the plugins' names. A name that begins with a dot is an unfinished install."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _look(folder: Path) -> Look:
    """Returns values that differ once the folder, the manifest or a module in it has changed."""
    try:
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.name == MANIFEST_NAME or entry.name.endswith(".wasm")]
            return tuple(sorted(_state(entry.name, entry.stat(follow_symlinks=False)) for entry in files))
    except OSError:
        return ()


def _state(name: str, found: os.stat_result) -> tuple[str, int, int, int]:
    return name, found.st_ino, found.st_size, found.st_mtime_ns
