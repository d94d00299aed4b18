"""The tool fs.list: shows what a folder of the workspace holds.

Does not own: the boundary of the workspace (workspace).
Every folder is opened relative to the one before it and without following links. So a folder that is replaced by a link
during the walk is not entered. Links are shown with their targets and never followed. Hidden files are shown. Folders
with others' work (`.git`, `node_modules`) are named, and entered only if the path itself names them.
"""

import os
import stat
from functools import partial
from threading import Event

import msgspec

from palyra.adapters.files.workspace import FOLDER_FLAGS, PATH_SCHEMA, WorkspacePath, locate_folder, open_itself
from palyra.adapters.tools.fs_search import look_nature
from palyra.adapters.tools.offload import STOPPED, offload
from palyra.adapters.tools.preview import spelled_out
from palyra.core.argument_schemas import arguments_schema, integer_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

ENTRIES_MAX = 1000
FOLDER_ENTRIES_MAX = (
    # So many entries are read before they are sorted. Of a larger folder an arbitrary part is shown, and the output
    # says so.
    100_000
)
OUTPUT_BYTES_MAX = 48 * 1024
DEPTH_MAX = 8
NOT_ENTERED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
_TARGET_LENGTH_MAX = 200

SPEC = ToolSpec(
    name="fs.list",
    description=(
        "Lists a folder of the workspace, sorted by name: folders end with a slash, files have their size in bytes, links "
        "show where they point and are not followed. Hidden files are listed. What is left out is said in a last line."
    ),
    input_schema=arguments_schema(
        {
            "path": {**PATH_SCHEMA, "description": "The folder, relative to the workspace's root; `.` is the root."},
            "depth": integer_schema(
                1, DEPTH_MAX, "How many levels to show. Default 1: what lies in the folder itself."
            ),
        },
        ["path"],
    ),
    capabilities=frozenset({Capability.FS_READ}),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
    timeout_s=20.0,
    traits=frozenset({Trait.TOUCHES_PATH}),
)


class FsList:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return look_nature(arguments.get("path"), workspace)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        depth = arguments.get("depth", 1)
        if not isinstance(depth, int) or not 1 <= depth <= DEPTH_MAX:
            return failed("arguments_invalid", f"depth is a whole number from 1 to {DEPTH_MAX}")
        try:
            place = locate_folder(arguments.get("path"), context.workspace)
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        return await offload(partial(_list, place, depth))


class _Entry(msgspec.Struct, frozen=True):
    name: str
    text: str
    is_folder: bool


class _Listing:
    def __init__(self, stop: Event) -> None:
        self.stop = stop
        self.lines: list[str] = []
        self.named: list[str] = []
        self.bytes_left = OUTPUT_BYTES_MAX
        self.left_out_count = 0
        self.unread: list[str] = []
        self.has_huge_folder = False

    def add(self, line: str, path: str) -> None:
        self.bytes_left -= len(line.encode()) + 1
        if self.is_full:
            self.left_out_count += 1
        else:
            self.lines.append(line)
            if _is_unicode(path):
                self.named.append(path)

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= ENTRIES_MAX or self.bytes_left < 0

    def walk(self, folder: int, shown: str, path: str, depth: int) -> None:
        entries, is_huge = _read_entries(folder)
        self.has_huge_folder |= is_huge
        for entry in entries:
            if self.stop.is_set():
                return
            slash = "/" if entry.is_folder else ""
            self.add(shown + entry.text, f"{path}{entry.name}{slash}")
            # A full listing goes on counting in the current folder, and enters no other.
            if entry.is_folder and depth > 1 and not self.is_full and entry.name not in NOT_ENTERED:
                self._enter(folder, entry, (shown, path), depth - 1)

    def _enter(self, folder: int, entry: _Entry, way: tuple[str, str], depth: int) -> None:
        shown, path = way
        try:
            inner = os.open(entry.name, FOLDER_FLAGS, dir_fd=folder)
        except OSError:
            # The folder is gone, was replaced by a link, or may not be read.
            self.unread.append(shown + entry.text)
            return
        try:
            self.walk(inner, shown + entry.text, f"{path}{entry.name}/", depth)
        finally:
            os.close(inner)

    def notes(self) -> list[str]:
        notes = []
        if self.left_out_count:
            notes.append(
                f"[At least {self.left_out_count} more entries are not shown; list a folder of it, or with less depth.]"
            )
        if self.has_huge_folder:
            notes.append(f"[A folder has more than {FOLDER_ENTRIES_MAX} entries; only some of them were looked at.]")
        if self.unread:
            notes.append(f"[{len(self.unread)} folders could not be read, the first is {self.unread[0]}]")
        return notes


def _list(place: WorkspacePath, depth: int, stop: Event) -> ToolResult:
    listing = _Listing(stop)
    with open_itself(place) as folder:
        listing.walk(folder, "", "/".join((os.path.realpath(place.root).rstrip("/"), *place.parts, "")), depth)
    if stop.is_set():
        return STOPPED
    lines = listing.lines or ["[The folder is empty.]"]
    output = "\n".join([*lines, *listing.notes()])
    return ToolResult(outcome=Outcome.OK, output=output, named=tuple(listing.named))


def _is_unicode(path: str) -> bool:
    """Tells whether a path is Unicode. No other path is recorded, because our tools write none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_entries(folder: int) -> tuple[list[_Entry], bool]:
    found: list[_Entry] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) == FOLDER_ENTRIES_MAX:
                return sorted(found, key=lambda each: each.name), True
            found.append(_entry(folder, entry.name))
    return sorted(found, key=lambda each: each.name), False


def _entry(folder: int, name: str) -> _Entry:
    """Reads an entry. Names are shown as they are, except characters that could hide or fake a line."""
    shown = spelled_out(name.encode("utf-8", "replace").decode())
    try:
        looked = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return _Entry(name, f"{shown} (gone)", False)
    if stat.S_ISDIR(looked.st_mode):
        return _Entry(name, f"{shown}/", True)
    if stat.S_ISLNK(looked.st_mode):
        return _Entry(name, f"{shown} -> {_target(folder, name)}", False)
    if stat.S_ISREG(looked.st_mode):
        return _Entry(name, f"{shown} {looked.st_size}", False)
    return _Entry(name, f"{shown} (device, pipe or socket)", False)


def _target(folder: int, name: str) -> str:
    try:
        target = os.readlink(name, dir_fd=folder)
    except OSError:
        return "(gone)"
    return spelled_out(target[:_TARGET_LENGTH_MAX].encode("utf-8", "replace").decode())
