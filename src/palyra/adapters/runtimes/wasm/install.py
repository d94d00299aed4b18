"""Installs plugins from a folder or a zip file, whole or not at all, and removes them.

Does not own: asking whether to install (cli.commands.plugins).
Invariants: two files are read of what is given, and nothing else is ever copied or unpacked. A plugin appears under its
name by one rename of a folder that is complete and durable. So a killed install leaves nothing or all of it. The next
install removes what an interrupted one left (`.incoming-…`).
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath

import msgspec

from palyra.adapters.files.durable import ensure_folder, sync_folder, write_new
from palyra.adapters.files.lock import held
from palyra.adapters.runtimes.wasm.compiler import WASM_BYTES_MAX
from palyra.adapters.runtimes.wasm.manifest import MANIFEST_BYTES_MAX, PluginManifest, SchemaErrors, read_manifest
from palyra.adapters.runtimes.wasm.plugin_folder import MANIFEST_NAME, decode, read_file, require_pin
from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable

ZIP_BYTES_MAX = 2 * WASM_BYTES_MAX
ZIP_MEMBERS_MAX = 100
STAGING = ".incoming-"
LEAVING = ".outgoing-"
# These are all the errors that reading an archive raises.
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error)
_MEMBER_MARK = b"PK\x01\x02"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class PluginCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was read and may be installed. `manifest_text` is what will be written, with its pin."""

    manifest: PluginManifest
    manifest_text: str
    wasm: bytes
    sha256: str

    def read_wasm(self) -> bytes:
        return self.wasm


def read_candidate(path: Path, schema_errors: SchemaErrors) -> PluginCandidate:
    """Reads a plugin from a folder or a .zip. Raises PalyraError, which says what is wrong and what to do."""
    if path.is_dir():
        text = decode(read_file(path / MANIFEST_NAME, MANIFEST_BYTES_MAX))
        manifest = read_manifest(text, schema_errors)
        wasm = read_file(path / manifest.wasm, WASM_BYTES_MAX)
    elif path.is_file():
        with _opened_zip(path) as members:
            text = decode(members.read(MANIFEST_NAME, MANIFEST_BYTES_MAX))
            manifest = read_manifest(text, schema_errors)
            wasm = members.read(manifest.wasm, WASM_BYTES_MAX)
    else:
        raise NotFound(
            "plugin_missing", f"{path} is neither a folder nor a .zip; give one with plugin.toml and its .wasm"
        )
    sha256 = hashlib.sha256(wasm).hexdigest()
    if manifest.sha256 is not None:
        require_pin(wasm, manifest.sha256, manifest.name)
    pinned = text if manifest.sha256 is not None else f'sha256 = "{sha256}"\n{text}'
    return PluginCandidate(
        manifest=read_manifest(pinned, schema_errors), manifest_text=pinned, wasm=wasm, sha256=sha256
    )


def put_in_place(candidate: PluginCandidate, plugins: Path, is_replacing: bool) -> None:
    """Installs the candidate. Raises Conflict if the name is taken and must not be replaced."""
    with _locked(plugins):
        target = plugins / candidate.manifest.name
        if os.path.lexists(target) and not is_replacing:
            message = f"{target.name} is installed already; use --replace, or remove it first"
            raise Conflict("plugin_exists", message, is_retryable=False)
        staged = plugins / f"{STAGING}{secrets.token_hex(8)}"
        staged.mkdir(mode=0o700)
        write_new(staged / candidate.manifest.wasm, candidate.wasm)
        write_new(staged / MANIFEST_NAME, candidate.manifest_text.encode())
        sync_folder(staged)
        old = _move_away(target) if os.path.lexists(target) else None
        staged.rename(target)
        sync_folder(plugins)
        if old is not None:
            _clear(old)


def take_away(name: str, plugins: Path) -> None:
    """Removes a plugin; its name is free at once. Raises NotFound if there is none."""
    _require(name, plugins)  # The check comes before the folder would be made.
    with _locked(plugins):
        _require(name, plugins)
        old = _move_away(plugins / name)
        sync_folder(plugins)
        _clear(old)


def _require(name: str, plugins: Path) -> None:
    """Checks the name as it was given. Joined to a folder first, an absolute path would lead anywhere."""
    if not _NAME.fullmatch(name) or not os.path.lexists(plugins / name):
        raise NotFound("plugin_unknown", f"there is no plugin {name!r}; palyra plugins list shows those there are")


@contextmanager
def _locked(plugins: Path) -> Iterator[None]:
    """Allows one install or removal at a time, and first removes what an interrupted one left."""
    try:
        ensure_folder(plugins)
        with held(plugins / ".lock"):
            for left in (*plugins.glob(f"{STAGING}*"), *plugins.glob(f"{LEAVING}*")):
                _clear(left)
            yield
    except TimeoutError as cause:
        raise Unavailable("plugins_busy", f"another process is changing {plugins}; try again") from cause
    except OSError as cause:
        message = f"{plugins} could not be changed ({cause.strerror}); check its owner and space, then try again"
        raise Unavailable("plugins_unwritable", message) from cause


def _move_away(target: Path) -> Path:
    aside = target.parent / f"{LEAVING}{secrets.token_hex(8)}"
    target.rename(aside)
    return aside


def _clear(path: Path) -> None:
    """Removes a path. For a link that is the link itself, and not its target."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


class _Members:
    """Files of an archive, by their names inside the one folder they may lie in."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._by_name = _checked(archive.infolist())

    def read(self, name: str, bytes_max: int) -> bytes:
        member = self._by_name.get(name)
        if member is None:
            raise NotFound("plugin_incomplete", f"the archive holds no {name}; a plugin is plugin.toml and its .wasm")
        # The file is read no further than the limit, whatever sizes the archive claims.
        with self._archive.open(member) as opened:
            body = opened.read(bytes_max + 1)
        if len(body) > bytes_max:
            raise Invalid("plugin_too_large", f"{name} is larger than {bytes_max} bytes; build it smaller")
        return body


@contextmanager
def _opened_zip(path: Path) -> Iterator[_Members]:
    with path.open("rb") as file:
        body = file.read(ZIP_BYTES_MAX + 1)
    if len(body) > ZIP_BYTES_MAX:
        raise Invalid("plugin_too_large", f"{path.name} is larger than {ZIP_BYTES_MAX} bytes; pack only the plugin")
    # The count is checked before a list of a million names is made. Bytes that look like an entry by chance are few.
    if body.count(_MEMBER_MARK) > 2 * ZIP_MEMBERS_MAX:
        raise Invalid("archive_invalid", f"the archive holds more than {ZIP_MEMBERS_MAX} files; pack only the plugin")
    try:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            yield _Members(archive)
    except _ZIP_ERRORS as cause:
        message = f"{path.name} is no .zip that can be read ({type(cause).__name__}); pack it again without a password"
        raise Invalid("archive_invalid", message) from cause


def _checked(members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Refuses archives that would do harm elsewhere, although nothing here unpacks them."""
    if len(members) > ZIP_MEMBERS_MAX:
        raise Invalid("archive_invalid", f"the archive holds more than {ZIP_MEMBERS_MAX} files; pack only the plugin")
    files: dict[PurePosixPath, zipfile.ZipInfo] = {}
    for member in members:
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename or "\0" in member.filename:
            raise Invalid("archive_invalid", "the archive names a file outside itself; it was not made to be installed")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Invalid("archive_invalid", "the archive is packed in an unusual way; pack it again with deflate")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Invalid("archive_invalid", "the archive holds a symbolic link; pack the file itself")
        if path in files:
            raise Invalid("archive_invalid", "the archive holds a name twice; pack it again")
        if not member.is_dir():
            files[path] = member
    return _in_one_folder(files)


def _in_one_folder(files: dict[PurePosixPath, zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Returns the files at the top of the archive, or those in the one folder there is."""
    manifests = [path for path in files if path.name == MANIFEST_NAME and len(path.parts) <= 2]
    if len(manifests) != 1:
        raise NotFound("plugin_incomplete", "the archive needs one plugin.toml, at its top or in its one folder")
    return {path.name: member for path, member in files.items() if path.parent == manifests[0].parent}
