"""Content that git would write: which of it is no file of the person, and how it is shown.

Owns: comparing a pair of path and content with the working tree and with the history, reading it, and the card's text.
Does not own: finding the pairs (git_changes), judging them (engine.session.draft_git).
Content that lies in the working tree at its path was judged as that file, or is the person's own. Content that the
history already had at its path is in reach without the draft.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from palyra.adapters.drafts.diffs import difference
from palyra.adapters.drafts.git_changes import Pair, old_ids, present_ids, read_log
from palyra.adapters.drafts.git_view import GitRunner, GitUnknownError, LayeredFiles, RepositoryView
from palyra.adapters.drafts.tree import Tree
from palyra.core.drafts.git import (
    COMMIT,
    EXECUTABLE,
    LINK,
    TEXT_BYTES_MAX,
    GitText,
    GitWrite,
    describe_write,
)
from palyra.core.events.draft import ChangeKind
from palyra.ports.drafts import PreviewRoom, ShownChanges

KNOWN_PATHS_MAX = 200  # So many paths are looked for in the whole history. Pairs of more paths count as new.
TEXTS_BYTES_MAX = 16 * 1024**2

_Place = tuple[str, str]


def find_unlike(files: LayeredFiles, writes: Iterable[GitWrite], applied: frozenset[_Place]) -> tuple[GitWrite, ...]:
    """Returns the writes whose content is neither in the working tree nor in the history at their path."""
    other = [write for write in writes if write.is_hidden or not _is_own_file(files, write, applied)]
    known: set[GitWrite] = set()
    for view, group in _by_repository(files, other):
        asked = [write for write in group if write.blob and not write.is_hidden]
        with suppress(GitUnknownError, OSError, ValueError, IndexError), view.git() as git:
            pairs = _known_pairs(view, git, {_path(write) for write in asked})
            known |= {write for write in asked if (write.mode, write.blob, _path(write)) in pairs}
    return tuple(write for write in other if write not in known)


def read_texts(files: LayeredFiles, writes: Sequence[GitWrite]) -> tuple[GitText, ...]:
    """Reads what git would write. A card shows no long content, so that is not read."""
    bodies: dict[tuple[str, str, str], bytes] = {}
    for view, group in _by_repository(files, writes):
        with suppress(GitUnknownError, OSError, ValueError, IndexError), view.git() as git:
            for blob, body in _read_blobs(git, {write.blob for write in group if write.blob}):
                bodies[view.root, view.path, blob] = body
    return tuple(GitText(write, bodies.get((write.root, write.repository, write.blob))) for write in writes)


def show_git_texts(texts: Sequence[GitText], room: PreviewRoom) -> ShownChanges:
    """Returns the difference from the files to what git would write, as far as there is room, and names the rest."""
    parts: list[str] = []
    left, shown, is_whole = room.length_max, 0, True
    for text in texts[: room.files_max]:
        part = _show(text)
        if len(part) > left and shown:
            break
        is_whole = is_whole and len(part) <= left and (text.body is not None or _is_titled(text))
        parts.append(part if len(part) <= left else f"{part[:left]}\n[the rest of this file is not shown]")
        left, shown = left - len(part), shown + 1
        if left <= 0:
            break
    rest = texts[shown:]
    if rest:
        parts.append(f"[{len(rest)} more in git are not shown as text]")
        parts += [describe_write(text.write, text.write.path) for text in rest[: room.files_max]]
    return ShownChanges("\n".join(parts), is_whole and not rest)


def _is_titled(text: GitText) -> bool:
    """Tells whether the title says all: there is no content that could be shown."""
    return text.write.is_hidden or text.write.mode == COMMIT


def _show(text: GitText) -> str:
    title = describe_write(text.write, text.write.path)
    if _is_titled(text):
        return title
    if text.body is None:
        return f"{title}\n[it is binary, missing or longer than {TEXT_BYTES_MAX // 1024} KiB, and is not shown]"
    runs = ", can be executed" if text.write.mode == EXECUTABLE else ", a link" if text.write.mode == LINK else ""
    before = None
    if text.write.is_file:
        with suppress(OSError, GitUnknownError):
            before = LayeredFiles({}, ()).before(text.write.root, text.write.path)
    return f"{title}{runs}\n{difference(text.write.path, before, text.body)}"


def _path(write: GitWrite) -> str:
    return write.path[len(write.base) :]


def _by_repository(files: LayeredFiles, writes: Iterable[GitWrite]) -> Iterator[tuple[RepositoryView, list[GitWrite]]]:
    groups: dict[_Place, list[GitWrite]] = {}
    for write in writes:
        if write.blob:
            groups.setdefault((write.root, write.repository), []).append(write)
    for (root, path), group in groups.items():
        yield RepositoryView(files, root, path, ()), group


def _is_own_file(files: LayeredFiles, write: GitWrite, applied: frozenset[_Place]) -> bool:
    """Tells whether the content lies at its path now, or does so once the draft is applied."""
    if not write.is_file or write.mode == COMMIT:
        return False
    with suppress(OSError, GitUnknownError):
        if _is_now(files, write):
            return True
        return (write.root, write.path) in applied and _is_then(files, write)
    return False


def _is_now(files: LayeredFiles, write: GitWrite) -> bool:
    with Tree(write.root) as tree, tree.folder_of(write.path) as (folder, name):
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(mode):
            return write.mode == LINK and _is_blob(write.blob, os.readlink(name, dir_fd=folder).encode())
    return _is_alike(write, files.before(write.root, write.path), mode)


def _is_then(files: LayeredFiles, write: GitWrite) -> bool:
    change = files.named.get((write.root, write.path))
    if change is None:
        return False  # It stays as it is now.
    if change.kind is ChangeKind.LINKED:
        target = os.readlink(f"{files.uppers[write.root]}/{write.path}")
        return write.mode == LINK and _is_blob(write.blob, target.encode())
    return _is_alike(write, files.after(write.root, write.path), change.mode)


def _is_alike(write: GitWrite, body: bytes | None, mode: int) -> bool:
    if body is None or write.mode == LINK or (write.mode == EXECUTABLE and not mode & 0o100):
        return False
    # Git may keep lines without the carriage return that they have in the working tree.
    return _is_blob(write.blob, body) or (b"\r\n" in body and _is_blob(write.blob, body.replace(b"\r\n", b"\n")))


def _is_blob(blob: str, body: bytes) -> bool:
    digest = hashlib.sha1(usedforsecurity=False) if len(blob) == 40 else hashlib.sha256()
    digest.update(b"blob %d\0" % len(body))
    digest.update(body)
    return digest.hexdigest() == blob


def _known_pairs(view: RepositoryView, git: GitRunner, paths: set[str]) -> set[Pair]:
    """Returns the pairs of these paths that the history had before the draft."""
    if not paths or len(paths) > KNOWN_PATHS_MAX:
        return set()
    ids = present_ids(git, old_ids(view))
    if not ids:
        return set()
    words = ("log", "--stdin", "--full-history", "-m", "--root", "--raw", "-r", "-z", "--no-abbrev", "--no-renames")
    asked = "".join(f"{each}\n" for each in ids).encode()
    printed = git.run("--literal-pathspecs", *words, "--format=%x00%H", "--", *sorted(paths), stdin=asked)
    return set(read_log(printed, {}))


def _read_blobs(git: GitRunner, blobs: set[str]) -> Iterator[tuple[str, bytes]]:
    asked = "".join(f"{each}\n" for each in sorted(blobs)).encode()
    short, total = [], 0
    for line in git.run("cat-file", "--batch-check", stdin=asked).decode(errors="replace").splitlines():
        words = line.split()
        if words[1:2] == ["blob"] and int(words[2]) <= TEXT_BYTES_MAX and total + int(words[2]) <= TEXTS_BYTES_MAX:
            short.append(words[0])
            total += int(words[2])
    if not short:
        return
    printed = git.run("cat-file", "--batch", stdin="".join(f"{each}\n" for each in short).encode())
    place = 0
    for blob in short:
        end = printed.index(b"\n", place)
        length = int(printed[place:end].split()[2])
        yield blob, printed[end + 1 : end + 1 + length]
        place = end + 2 + length
