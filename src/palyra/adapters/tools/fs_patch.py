"""The tool fs.patch: applies a unified diff to files of the workspace.

Does not own: parsing diffs (core.patch_parser), the boundary of the workspace (workspace).
Invariants: a hunk that does not match refuses the whole patch, and nothing is written. New content is first written
whole beside its file and made durable. Only then are the files replaced, one rename after the other, and at last
deleted files are removed. If the daemon is killed between two of these steps, some files are new and the others old,
and each is whole. The same effect performed again finds the new files applied and finishes the rest. So the class is
idempotent.
"""

import os
from contextlib import suppress
from functools import partial
from threading import Event

from msgspec.structs import replace

from palyra.adapters.files.change_keeper import ChangeKeeper
from palyra.adapters.files.homes import is_wide_dot_file
from palyra.adapters.files.known_links import linked_names
from palyra.adapters.files.partial import MARK, Writing, fill_partial, is_kept_executable
from palyra.adapters.files.reviewed import is_unseen_write
from palyra.adapters.files.workspace import (
    WorkspacePath,
    absolute,
    bytes_at,
    explained,
    locate,
    look,
    make_folder,
    open_folder,
)
from palyra.adapters.tools.fs_patch_plan import PatchedFile, PatchPlan, places_of
from palyra.adapters.tools.offload import STOPPED, offload
from palyra.adapters.tools.preview import preview_changes
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.errors import Conflict, PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, FileBytes, Outcome, ParallelClass, Risk
from palyra.core.patch_parser import FILES_MAX, read_patch
from palyra.core.patches import FilePatch
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

PATCH_LENGTH_MAX = 200_000  # An event holds 256 KiB, and the call is on the tape with its patch.
READ_BYTES_MAX = 16 * 1024 * 1024  # Limits all files together, because they are held at once.
# Limits all files together. The daemon waits while a preview is made, so it has to be quick.
PREVIEWED_BYTES_MAX = 128 * 1024

SPEC = ToolSpec(
    name="fs.patch",
    description=(
        "Applies a unified diff to files of the workspace: changes, creates (`--- /dev/null`), deletes (`+++ /dev/null`) "
        "and renames. Context and removed lines must stand in the file exactly; if one hunk does not match, nothing is "
        "written and the error says what stands there instead. Line numbers may be missing or wrong where the context "
        "stands only once. A patch that is already applied succeeds."
    ),
    input_schema=arguments_schema(
        {
            "patch": text_schema(
                PATCH_LENGTH_MAX,
                f"The diff, of at most {FILES_MAX} files: `--- a/path`, `+++ b/path`, then `@@` and its lines.",
            )
        },
        ["patch"],
    ),
    capabilities=frozenset({Capability.FS_READ, Capability.FS_WRITE}),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.PATH_SCOPED,
    risk=Risk.MEDIUM,
    output_trust=Trust.SYSTEM,
    timeout_s=30.0,
)


class FsPatch:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        try:
            patches = _patches_of(arguments.get("patch"))
        except PalyraError as refused:
            # Performing the patch refuses it in these words. Its only path is the root.
            return _nature((".",) if workspace else (), bool(workspace), refused.message)
        paths, is_inside = _paths_of(patches, workspace)
        if not is_inside:
            return _nature(paths, False, None)
        plan = PatchPlan(workspace, PREVIEWED_BYTES_MAX)
        linked = linked_names(paths, workspace)
        places = places_of(patches, workspace)
        is_wide = any(is_wide_dot_file(place.root, "/".join(place.parts)) for place in places)
        can_run = any(patch.is_executable for patch in patches) or is_kept_executable(paths, workspace)
        try:
            plan.make(patches)
        except PalyraError as refused:
            unknown = tuple(replace(bytes_at(place, b""), sha256="") for place in places)
            nature = replace(_nature(paths, True, refused.message), is_wide_dot_file=is_wide)
            return replace(nature, linked_names=linked, carried=unknown, makes_executable=can_run)
        shown = [(f"{change.place.shown}: {change.done}", change.old, change.text or "") for change in plan.changes]
        nature = replace(
            _nature(paths, True, preview_changes(shown)),
            makes_executable=can_run,
            is_unseen=any(is_unseen_write(change.place, change.text) for change in plan.changes),
            is_wide_dot_file=is_wide,
        )
        return replace(nature, writes=_written(plan.changes), linked_names=linked, carried=tuple(plan.read))

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        try:
            patches = _patches_of(arguments.get("patch"))
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        return await offload(partial(_patch, patches, context))


def _patches_of(patch: object) -> tuple[FilePatch, ...]:
    if not isinstance(patch, str) or len(patch) > PATCH_LENGTH_MAX:
        raise Conflict("patch_invalid", f"patch is text of at most {PATCH_LENGTH_MAX} characters")
    try:
        patch.encode()
    except UnicodeEncodeError as cause:
        raise Conflict("patch_invalid", "patch is not valid Unicode") from cause
    return read_patch(patch)


def _nature(paths: tuple[str, ...], is_inside: bool, preview: str | None) -> CallNature:
    return CallNature(
        effect_class=EffectClass.IDEMPOTENT,
        parallel_class=ParallelClass.PATH_SCOPED,
        paths=paths,
        is_in_workspace=is_inside,
        preview=preview,
    )


def _paths_of(patches: tuple[FilePatch, ...], workspace: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    try:
        return tuple(dict.fromkeys(place.shown for place in places_of(patches, workspace))), True
    except PalyraError:
        pass
    names = dict.fromkeys(name for patch in patches for name in (patch.path, patch.source))
    found: list[str] = []
    for name in names:
        with suppress(PalyraError):
            found.append(absolute(name, workspace))
    return tuple(found), False


def _patch(patches: tuple[FilePatch, ...], context: ToolCallContext, stop: Event) -> ToolResult:
    plan = PatchPlan(context.workspace, READ_BYTES_MAX, context.effect_id)
    try:
        plan.make(patches)
    except PalyraError as refused:
        # The message may quote a file's text, so it is as trusted as that.
        _drop_partials(patches, context)
        return replace(failed(refused.code, refused.message), trust=Trust.LOCAL, read=tuple(plan.read))
    work = _Work(plan.changes, context)
    try:
        work.prepare()
        if stop.is_set():
            return STOPPED
        work.require_unchanged()
        keeper = work.keep_content()
        refused_late = work.replace_all()
    finally:
        work.clean_up()
    if refused_late is not None:
        return replace(refused_late, changed=keeper.finish())
    lines = [f"{change.place.shown}: {change.done}" for change in plan.changes]
    return ToolResult(
        outcome=Outcome.OK,
        output="\n".join(lines),
        read=tuple(plan.read),
        written=_written(plan.changes),
        changed=keeper.finish(),
    )


class _Work:
    """The steps that change something, and the leftovers to remove after them."""

    def __init__(self, changes: list[PatchedFile], context: ToolCallContext) -> None:
        self._changes = changes
        self._context = context
        self._folders: dict[int, int] = {}

    def prepare(self) -> None:
        """Writes every new content durably beside its file."""
        for number, change in enumerate(self._changes):
            if not change.is_write:
                continue
            with make_folder(change.place) as folder:
                self._folders[number] = os.dup(folder)
            body = (change.text or "").encode()
            name = _partial_name(self._context, number)
            with explained(change.place):
                fill_partial(Writing(change.place, body, name), self._folders[number], change.kept)
                _mark(name, self._folders[number], change, self._context.effect_id)

    def require_unchanged(self) -> None:
        """Refuses files that changed since they were read: their new content is not what was judged."""
        for number, change in enumerate(self._changes):
            if change.is_write:
                with explained(change.place):
                    _require_same(self._folders[number], change.place, change.seen)
            if change.gone is not None and change.is_new:
                with open_folder(change.gone) as folder:
                    _require_same(folder, change.gone, change.gone_seen)

    def keep_content(self) -> ChangeKeeper:
        keeper = ChangeKeeper()
        for change in self._changes:
            keeper.before(change.place)
            if change.gone is not None:
                keeper.before(change.gone)
        return keeper

    def replace_all(self) -> ToolResult | None:
        """Replaces the files. Returns what stopped it half way, if something did."""
        done: list[PatchedFile] = []
        try:
            for number, change in enumerate(self._changes):
                if change.is_write:
                    self._replace(number, change)
                    done.append(change)
            for change in self._changes:
                if change.gone is not None and change.is_new:
                    _remove(change.gone)
        except PalyraError as refused:
            names = ", ".join(change.place.shown for change in done) or "none"
            message = f"{refused.message}; replaced before that: {names}. Apply the same patch again to finish it"
            return replace(failed(refused.code, message), written=_written(done))
        return None

    def _replace(self, number: int, change: PatchedFile) -> None:
        folder = self._folders[number]
        with explained(change.place):
            # A rename replaces a link that was put there meanwhile, and never follows one.
            os.rename(_partial_name(self._context, number), change.place.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def clean_up(self) -> None:
        for number, folder in self._folders.items():
            with suppress(OSError):
                os.unlink(_partial_name(self._context, number), dir_fd=folder)
            os.close(folder)


def _partial_name(context: ToolCallContext, number: int) -> str:
    """Names a partial file by the effect, so that the attempt after a crash removes the first one's leftovers."""
    return f".palyra-{context.effect_id[:24]}-{number}.partial"


def _drop_partials(patches: tuple[FilePatch, ...], context: ToolCallContext) -> None:
    """Removes the leftovers of a killed attempt when this one is refused."""
    for number, patch in enumerate(patches):
        with suppress(PalyraError), open_folder(locate(patch.path, context.workspace)) as folder:
            os.unlink(_partial_name(context, number), dir_fd=folder)


def _mark(name: str, folder: int, change: PatchedFile, effect_id: str) -> None:
    """Records the effect on the partial file, and makes a new program executable for everyone who may read it."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        with suppress(OSError):
            os.setxattr(file, MARK, effect_id.encode())
        if change.is_executable and change.kept is None:
            mode = os.fstat(file).st_mode & 0o777
            os.fchmod(file, mode | (mode & 0o444) >> 2)
        os.fsync(file)
    finally:
        os.close(file)


def _require_same(folder: int, place: WorkspacePath, seen: os.stat_result | None) -> None:
    try:
        now = look(folder, place)
    except FileNotFoundError:
        now = None
    if _marks(now) != _marks(seen):
        raise Conflict("changed_meanwhile", f"{place.shown} was changed while the patch was prepared; try again")


def _marks(seen: os.stat_result | None) -> tuple[int, ...] | None:
    return None if seen is None else (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _remove(place: WorkspacePath) -> None:
    with open_folder(place) as folder:
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=folder)
        os.fsync(folder)


def _written(changes: list[PatchedFile]) -> tuple[FileBytes, ...]:
    return tuple(bytes_at(change.place, change.text.encode()) for change in changes if change.text is not None)
