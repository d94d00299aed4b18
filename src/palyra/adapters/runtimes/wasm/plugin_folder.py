"""Reads the two files of a plugin's folder so that nothing leads elsewhere, and checks its pin.

Does not own: installing (install).
Invariants: a file is read only if it is regular, without following links, up to its limit. An installed plugin whose
module has another SHA-256 than its manifest says is refused.
"""

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from palyra.adapters.files.regular import OversizedFile, UnfitFile, read_regular
from palyra.adapters.runtimes.wasm.compiler import WASM_BYTES_MAX
from palyra.adapters.runtimes.wasm.manifest import MANIFEST_BYTES_MAX, PluginManifest, SchemaErrors, read_manifest
from palyra.core.errors import Invalid, NotFound

MANIFEST_NAME = "plugin.toml"


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """An installed plugin whose files were valid."""

    folder: Path
    manifest: PluginManifest
    sha256: str

    def read_wasm(self) -> bytes:
        """Returns the module's bytes, which must still be those that were pinned."""
        wasm = read_file(self.folder / self.manifest.wasm, WASM_BYTES_MAX)
        require_pin(wasm, self.sha256, self.manifest.name)
        return wasm


def open_plugin(folder: Path, schema_errors: SchemaErrors) -> Plugin:
    """Reads an installed plugin. Raises PalyraError with everything that is wrong."""
    manifest = open_manifest(folder, schema_errors)
    if manifest.name != folder.name:
        message = f"its folder is {folder.name} and plugin.toml names it {manifest.name}; install it with palyra plugins install"
        raise Invalid("plugin_misplaced", message)
    if manifest.sha256 is None:
        message = "plugin.toml pins no sha256; install it with palyra plugins install instead of copying it here"
        raise Invalid("plugin_unpinned", message)
    plugin = Plugin(folder=folder, manifest=manifest, sha256=manifest.sha256)
    plugin.read_wasm()
    return plugin


def open_manifest(folder: Path, schema_errors: SchemaErrors) -> PluginManifest:
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise Invalid("plugin_misplaced", f"{folder.name} is no folder; remove it")
    return read_manifest(decode(read_file(folder / MANIFEST_NAME, MANIFEST_BYTES_MAX)), schema_errors)


def read_file(path: Path, bytes_max: int) -> bytes:
    """Reads the whole of a regular file. Links, devices and files that are too large are refused."""
    try:
        return read_regular(path, bytes_max).data
    except FileNotFoundError as cause:
        raise NotFound("plugin_incomplete", f"{path.name} is missing; a plugin is plugin.toml and its .wasm") from cause
    except OversizedFile as cause:
        raise Invalid("plugin_too_large", f"{path.name} {cause}; build it smaller") from cause
    except UnfitFile as cause:
        raise Invalid("plugin_unreadable", f"{path.name} {cause}; put the file itself there") from cause
    except OSError as cause:
        message = f"{path.name} is unreadable ({cause.strerror}); put the file itself there"
        raise Invalid("plugin_unreadable", message) from cause


def decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise Invalid("manifest_invalid", f"{MANIFEST_NAME} is not UTF-8 (first at byte {cause.start})") from cause


def require_pin(wasm: bytes, sha256: str, name: str) -> None:
    found = hashlib.sha256(wasm).hexdigest()
    if found != sha256:
        message = (
            f"the module of {name} is not the one that was installed (its SHA-256 is {found[:12]}…, pinned is {sha256[:12]}…); "
            "install it again if you changed it, else find out who did"
        )
        raise Invalid("module_changed", message)
