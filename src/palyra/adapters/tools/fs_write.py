"""The tool fs.write: replaces a file of the workspace whole.

Does not own: the boundary of the workspace (workspace).
Invariants: at every instant the file has its old content or its new one, also if the daemon is killed or the power
fails. When the call reports success the new content is durable. Writing the same again is writing once, so the class is
idempotent. The effect names the partial file, so the attempt after a crash removes the first one's leftover.
"""

import os
from contextlib import suppress
from functools import partial
from threading import Event

from palyra.adapters.files.change_keeper import ChangeKeeper
from palyra.adapters.files.homes import is_wide_dot_file
from palyra.adapters.files.known_links import linked_names
from palyra.adapters.files.partial import Writing, fill_partial, is_kept_executable
from palyra.adapters.files.reviewed import is_unseen_write
from palyra.adapters.files.workspace import (
    PATH_SCHEMA,
    WorkspacePath,
    bytes_at,
    locate,
    look,
    make_folder,
    open_file,
    open_folder,
    read_bytes,
)
from palyra.adapters.tools.fs_read import paths_of
from palyra.adapters.tools.offload import STOPPED, offload
from palyra.adapters.tools.preview import preview_write
from palyra.core.argument_schemas import arguments_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, FileBytes, Outcome, ParallelClass, Risk
from palyra.core.plurals import counted
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

CONTENT_LENGTH_MAX = 200_000  # An event holds 256 KiB, and the call is on the tape with its content.
PREVIEWED_BYTES_MAX = 64 * 1024  # Limits the old file. The daemon waits while a preview is made, so it has to be quick.

SPEC = ToolSpec(
    name="fs.write",
    description=(
        "Writes a text file of the workspace, replacing what was there. The content is the whole file: to change a part, "
        "read it first and write all of it. Missing folders are created."
    ),
    input_schema=arguments_schema(
        {
            "path": PATH_SCHEMA,
            "content": {
                "type": "string",
                "maxLength": CONTENT_LENGTH_MAX,
                "description": "The whole new content of the file, as UTF-8 text.",
            },
        },
        ["path", "content"],
    ),
    capabilities=frozenset({Capability.FS_WRITE}),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.PATH_SCOPED,
    risk=Risk.MEDIUM,
    output_trust=Trust.SYSTEM,
    timeout_s=30.0,
    traits=frozenset({Trait.TOUCHES_PATH, Trait.WRITES_FILE}),
)


class FsWrite:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        paths, is_inside = paths_of(arguments.get("path"), workspace)
        content = arguments.get("content")
        return CallNature(
            effect_class=EffectClass.IDEMPOTENT,
            parallel_class=ParallelClass.PATH_SCOPED,
            paths=paths,
            is_in_workspace=is_inside,
            preview=_preview(paths[0], content, workspace) if is_inside and isinstance(content, str) else None,
            writes=_writes(paths[0], content, workspace) if is_inside and isinstance(content, str) else (),
            makes_executable=is_inside and is_kept_executable(paths, workspace),
            linked_names=linked_names(paths, workspace) if is_inside else (),
            is_unseen=is_inside and _is_unseen(arguments.get("path"), content, workspace),
            is_wide_dot_file=is_inside and _is_wide_dot_file(arguments.get("path"), workspace),
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        content = arguments.get("content")
        if not isinstance(content, str) or len(content) > CONTENT_LENGTH_MAX:
            return failed("content_invalid", f"content is text of at most {CONTENT_LENGTH_MAX} characters")
        try:
            body = content.encode()
            place = locate(arguments.get("path"), context.workspace)
        except UnicodeEncodeError:
            return failed("content_invalid", "content is not valid Unicode")
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        partial_name = f".palyra-{context.effect_id[:24]}.partial"
        return await offload(partial(_write, Writing(place, body, partial_name)))


def _write(writing: Writing, stop: Event) -> ToolResult:
    place = writing.place
    keeper = ChangeKeeper()
    keeper.before(place)
    with make_folder(place) as folder:
        try:
            before = look(folder, place)
        except FileNotFoundError:
            before = None
        try:
            fill_partial(writing, folder, before)
            if stop.is_set():
                return STOPPED
            # A rename replaces a link that was put there meanwhile, and never follows one.
            os.rename(writing.partial_name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(writing.partial_name, dir_fd=folder)
    done = "created" if before is None else "replaced"
    size = "and it is empty"
    if writing.body:
        size = f"{counted(len(writing.body.splitlines()), 'line')}, {counted(len(writing.body), 'byte')}"
    text = f"{place.shown}: {done}, {size}"
    return ToolResult(
        outcome=Outcome.OK, output=text, written=(bytes_at(place, writing.body),), changed=keeper.finish()
    )


def _writes(path: str, content: str, workspace: tuple[str, ...]) -> tuple[FileBytes, ...]:
    try:
        return (bytes_at(locate(path, workspace), content.encode()),)
    except (PalyraError, UnicodeEncodeError):
        return ()


def _is_unseen(path: object, content: object, workspace: tuple[str, ...]) -> bool:
    try:
        return isinstance(content, str) and is_unseen_write(locate(path, workspace), content)
    except PalyraError:
        return False  # It is refused as it is performed.


def _is_wide_dot_file(path: object, workspace: tuple[str, ...]) -> bool:
    try:
        place = locate(path, workspace)
    except PalyraError:
        return False
    return is_wide_dot_file(place.root, "/".join(place.parts))


def _preview(path: str, content: str, workspace: tuple[str, ...]) -> str:
    try:
        place = locate(path, workspace)
        return preview_write(place.shown, _read_old(place), content)
    except PalyraError as refused:
        return f"{path}: {refused.message}"


def _read_old(place: WorkspacePath) -> bytes | None:
    """Reads the present file for a preview; None if there is none. One byte over the limit shows that there is more."""
    try:
        with open_folder(place) as folder:
            file = open_file(folder, place)
            try:
                return read_bytes(file, PREVIEWED_BYTES_MAX + 1)
            finally:
                os.close(file)
    except PalyraError as refused:
        if refused.code == "not_found":
            return None
        raise
