"""Shows a draft as a difference, for the card that a person reads.

Owns: the order (what asks first is the caller's), limits, and plain words for what is no text.
Does not own: redaction (the engine redacts every text it records).
"""

import difflib
import hashlib
import os
from contextlib import suppress

from palyra.adapters.drafts.tree import Tree
from palyra.adapters.files.archives import FILE_FLAGS, KeptFile, kept_files
from palyra.core.drafts.changes import is_folder
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.spelling import spell_out
from palyra.ports.drafts import Contents, PreviewRoom, ShownChanges

FILE_BYTES_MAX = 64 * 1024  # A longer file is named with its size. The daemon waits while a difference is made.
COMPARED_LENGTH_MAX = 200 * 1024
_CHANGED = "[it has changed since the run, so it cannot be undone]"
UNDONE = "[undone: it is as it was before]"
_LONG = f"[it is longer than {FILE_BYTES_MAX // 1024} KiB, and is not shown]"


def show_changes(changes: tuple[FileChange, ...], uppers: dict[str, str], room: PreviewRoom) -> ShownChanges:
    """Returns the difference from what lies there now, as far as there is room, and counts the rest.

    What a deleted file held may be left out of a whole difference: its name says what happens to it.
    """
    parts: list[str] = []
    left = room.length_max
    shown = 0
    is_whole = True
    for change in changes[: room.files_max]:
        text, is_text_whole = _show(change, uppers.get(change.root), room)
        if len(text) > left and shown:
            break
        is_whole = is_whole and ((is_text_whole and len(text) <= left) or change.kind is ChangeKind.DELETED)
        parts.append(text if len(text) <= left else f"{text[:left]}\n[the rest of this file is not shown]")
        left -= len(text)
        shown += 1
        if left <= 0:
            break
    rest = changes[shown:]
    if rest:
        is_whole = is_whole and all(change.kind is ChangeKind.DELETED for change in rest)
        parts.append(f"[{len(rest)} more changes are not shown as text]")
        parts += [_title(change) for change in rest[: room.files_max]]
    return ShownChanges("\n".join(parts), is_whole)


def compare_changes(changes: tuple[FileChange, ...], contents: Contents) -> str:
    """Returns what calls changed, from the kept content to what lies there now. A file that changed since is named."""
    kept = kept_files(contents)
    parts: list[str] = []
    left = COMPARED_LENGTH_MAX
    for change in changes:
        title = _title(change)
        if not is_folder(change) and change.kind not in (ChangeKind.MODE, ChangeKind.LINKED):
            title = f"{title}\n{_compared(change, kept)}"
        if len(title) > left:
            parts.append(_title(change))
            continue
        parts.append(title)
        left -= len(title)
    return "\n".join(parts)


def _compared(change: FileChange, kept: dict[tuple[str, str], KeptFile]) -> str:
    if change.after_sha256 is None and change.before_sha256 is not None and _is_back(change, _read_below(change)):
        return UNDONE
    now = _read_below(change) if change.after_sha256 is not None else None
    if change.after_sha256 is not None and (now is None or hashlib.sha256(now).hexdigest() != change.after_sha256):
        if _is_back(change, now):
            return UNDONE
        return _LONG if now is not None and len(now) > FILE_BYTES_MAX else _CHANGED
    if change.before_sha256 is None:
        return difference(change.path, None, now)
    found = kept.get((f"{change.root.rstrip('/')}/{change.path}", change.before_sha256))
    if found is None:
        return "[what it held before was not kept]"
    return difference(change.path, found.body, now)


def _is_back(change: FileChange, now: bytes | None) -> bool:
    """Tells whether there is again what was there before, as an undo leaves it."""
    if change.before_sha256 is None:
        return not os.path.lexists(f"{change.root}/{change.path}")
    return now is not None and hashlib.sha256(now).hexdigest() == change.before_sha256


def difference(name: str, before: bytes | None, after: bytes | None) -> str:
    """Returns a unified difference of two contents; None is a file that is not there."""
    texts = [_text(before), _text(after)]
    if None in texts:
        return f"binary or very long: {_size(before)} to {_size(after)}"
    old, new = (text.splitlines() for text in texts if text is not None)
    lines = difflib.unified_diff(
        old,
        new,
        f"a/{name}" if before is not None else "/dev/null",
        f"b/{name}" if after is not None else "/dev/null",
        lineterm="",
    )
    return "\n".join(spell_out(line, kept="\t") for line in lines)


def _show(change: FileChange, upper: str | None, room: PreviewRoom) -> tuple[str, bool]:
    """Returns the text of one change, and whether it says all of what is written."""
    title = _title(change)
    if is_folder(change) or change.kind is ChangeKind.MODE:
        return title, True
    if change.kind is ChangeKind.LINKED:
        return f"{title} -> {_target(upper, change.path)}", True
    before = _read_below(change) if change.before_sha256 is not None else None
    if upper is None or change.after_sha256 is None:
        return f"{title}\n{difference(change.path, before, None)}", True
    after = _read(f"{upper}/{change.path}", room.file_bytes_max)
    if max(len(after), len(before or b"")) <= FILE_BYTES_MAX:
        return f"{title}\n{difference(change.path, before, after)}", True
    return f"{title}\n{_whole_content(after, change, room.file_bytes_max)}", len(after) <= room.file_bytes_max


def _whole_content(after: bytes, change: FileChange, bytes_max: int) -> str:
    """Shows a file that is too long to be compared. What is no text, or longer still, is named with its size and hash."""
    text = _text(after, bytes_max)
    if text is None:
        return f"binary or very long: {change.bytes} bytes of SHA-256 {change.after_sha256}"
    lines = spell_out("\n".join(text.splitlines()), kept="\n\t").split("\n")
    return "\n".join(["the whole new content:", *(f"+{line}" for line in lines)])


def _title(change: FileChange) -> str:
    path = spell_out(change.path, kept="")
    if change.kind is ChangeKind.MODE:
        return f"mode {path}: {change.before_mode:o} to {change.mode:o}"
    runs = ", can be executed" if change.mode & 0o111 and change.after_sha256 and not is_folder(change) else ""
    return f"{change.kind.value} {path}{runs}"


def _target(upper: str | None, path: str) -> str:
    with suppress(OSError):
        return spell_out(os.readlink(f"{upper}/{path}"), kept="")
    return "?"


def _read_below(change: FileChange) -> bytes | None:
    with suppress(OSError), Tree(change.root) as tree, tree.folder_of(change.path) as (folder, name):
        file = os.open(name, FILE_FLAGS, dir_fd=folder)
        try:
            return os.read(file, FILE_BYTES_MAX + 1)
        finally:
            os.close(file)
    return b""


def _read(path: str, bytes_max: int) -> bytes:
    with suppress(OSError), open(os.open(path, FILE_FLAGS), "rb") as file:
        return file.read(bytes_max + 1)
    return b""


def _size(body: bytes | None) -> str:
    length = len(body or b"")
    return f"{length} bytes" if length <= FILE_BYTES_MAX else f"more than {FILE_BYTES_MAX} bytes"


def _text(body: bytes | None, bytes_max: int = FILE_BYTES_MAX) -> str | None:
    if body is None:
        return ""
    if len(body) > bytes_max or b"\x00" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
