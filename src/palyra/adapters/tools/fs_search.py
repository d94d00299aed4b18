"""The tool fs.search: searches a folder, with limits, in a process of its own.

Does not own: the search itself (search_child).
The process is killed when the call is cancelled or its time is over. So no pattern and no tree can hold up the daemon,
neither its threads nor its memory.
"""

import asyncio
import os
import sys
from functools import partial
from threading import Event
from typing import cast

import msgspec

from palyra.adapters.files.workspace import (
    PATH_LENGTH_MAX,
    PATH_SCHEMA,
    WorkspacePath,
    absolute,
    locate_folder,
    look,
    open_folder,
    open_itself,
)
from palyra.adapters.tools.offload import offload
from palyra.adapters.tools.search_child import SearchReply, Task
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, FileBytes, Outcome, ParallelClass, Risk
from palyra.core.plurals import counted
from palyra.core.projections.provenance import full_path
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

MATCHES_MAX = 200
OUTPUT_BYTES_MAX = 48 * 1024
LINE_LENGTH_MAX = 300
PATTERN_LENGTH_MAX = 2000
GLOB_LENGTH_MAX = 500
TIMEOUT_S = 60.0
CHILD = "palyra.adapters.tools.search_child"

SPEC = ToolSpec(
    name="fs.search",
    description=(
        "Searches text files of the workspace for a regular expression (RE2 syntax, line by line; no look-around, no "
        "backreferences). Returns path:line:text. Hidden files, binary files and what .gitignore and .ignore name are "
        f"skipped unless the path itself names them. At most {MATCHES_MAX} lines; a last line in brackets says if there is more."
    ),
    input_schema=arguments_schema(
        {
            "pattern": text_schema(
                PATTERN_LENGTH_MAX, "The regular expression, for example `def \\w+_total` or `(?i)license`."
            ),
            "path": {**PATH_SCHEMA, "description": "The folder or file to search in. Default: the workspace's root."},
            "glob": text_schema(
                GLOB_LENGTH_MAX,
                "Which files: `*.py`, `src/**/*.{ts,tsx}`, relative to path. With `!` in front: which not.",
            ),
        },
        ["pattern"],
    ),
    capabilities=frozenset({Capability.FS_READ}),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.TOUCHES_PATH}),
)


class FsSearch:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return look_nature(arguments.get("path", "."), workspace)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        pattern, glob = arguments.get("pattern"), arguments.get("glob")
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= PATTERN_LENGTH_MAX or not _is_unicode(pattern):
            return failed("pattern_invalid", f"pattern is text of 1 to {PATTERN_LENGTH_MAX} characters")
        if glob is not None and not (isinstance(glob, str) and 1 <= len(glob) <= GLOB_LENGTH_MAX and _is_unicode(glob)):
            return failed("arguments_invalid", f"glob is text of 1 to {GLOB_LENGTH_MAX} characters")
        try:
            place = locate_folder(arguments.get("path", "."), context.workspace)
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        refused_early = await offload(partial(_check, place))
        if refused_early.error is not None:
            return refused_early
        return await _search(place, pattern, glob)


def look_nature(path: object, workspace: tuple[str, ...]) -> CallNature:
    """Returns the nature of a call that only looks below a path."""
    paths, is_inside = _paths_of(path, workspace)
    return CallNature(
        effect_class=EffectClass.READ_ONLY,
        parallel_class=ParallelClass.READ_ONLY_SAFE,
        paths=paths,
        is_in_workspace=is_inside,
    )


def _paths_of(path: object, workspace: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    try:
        return (locate_folder(path, workspace).shown,), True
    except PalyraError:
        pass
    try:
        return (absolute(path, workspace),), False
    except PalyraError:
        return (), False


def _is_unicode(text: str) -> bool:
    try:
        return len(text.encode()) <= PATH_LENGTH_MAX * 4
    except UnicodeEncodeError:
        return False


def _check(place: WorkspacePath, stop: Event) -> ToolResult:
    """Says in words whether there is something to search. The searching process makes the walk that counts."""
    try:
        with open_itself(place):
            return ToolResult(outcome=Outcome.OK)
    except PalyraError as refused:
        if refused.code != "not_a_folder":
            raise
    with open_folder(place) as folder:
        look(folder, place)
    return ToolResult(outcome=Outcome.OK)


async def _search(place: WorkspacePath, pattern: str, glob: str | None) -> ToolResult:
    try:
        root = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as cause:
        return failed("workspace_missing", f"the workspace folder cannot be opened: {cause.strerror}")
    try:
        task = Task(
            root=root,
            parts=list(place.parts),
            pattern=pattern,
            glob=glob,
            matches_max=MATCHES_MAX,
            output_bytes_max=OUTPUT_BYTES_MAX,
            line_length_max=LINE_LENGTH_MAX,
        )
        body = await _run_child(task)
    finally:
        os.close(root)
    if not body:
        return failed(
            "search_stopped", "the search ran out of memory or time; narrow the pattern, the path or the glob"
        )
    answer = cast(SearchReply, msgspec.json.decode(body))
    if answer["error"] is not None:
        return _refused(place, answer["error"])
    read = tuple(_bytes_of(place, path, sha256) for path, sha256 in answer["hashes"].items())
    named = tuple(map(full_path, read))
    return ToolResult(outcome=Outcome.OK, output=_told(place, answer), read=read, named=named)


async def _run_child(task: Task) -> bytes:
    """Returns the process's answer, or nothing if it was ended before.

    Whatever happens, the process does not outlive this call.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        CHILD,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(task["root"],),
        env={},
        cwd="/",
    )
    try:
        body, _ = await child.communicate(msgspec.json.encode(task))
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return body if child.returncode == 0 else b""


def _refused(place: WorkspacePath, error: str) -> ToolResult:
    code, _, message = error.partition(" ")
    if code == "pattern_invalid":
        return failed(
            code, f"the pattern is no RE2 expression: {message}; look-around and backreferences do not exist in it"
        )
    return failed(code, f"{place.shown} could not be searched: {message}")


def _bytes_of(place: WorkspacePath, below: str, sha256: str) -> FileBytes:
    path = "/".join((*place.parts, *([below] if below else [])))
    return FileBytes(root=os.path.realpath(place.root), path=path, sha256=sha256)


def _told(place: WorkspacePath, answer: SearchReply) -> str:
    base = "" if place.shown == "." else place.shown
    lines = [f"{'/'.join(filter(None, (base, path)))}:{number}:{text}" for path, number, text in answer["matches"]]
    if answer["is_full"]:
        files = f"{counted(answer['files_count'], 'file')} searched so far"
        matches = counted(len(lines), "match", "matches")
        lines.append(f"[Stopped after {matches}, {files}: there are more. Narrow the pattern, path or glob.]")
    elif not lines:
        lines.append(f"[No match in {counted(answer['files_count'], 'file')}.]")
    if answer["unread_count"]:
        lines.append(f"[{counted(answer['unread_count'], 'file or folder', 'files or folders')} could not be read.]")
    return "\n".join(lines)
