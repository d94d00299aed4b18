"""What a person's review of a workspace shows, and what of a set of changes is kept from it.

Owns: `unseen_reason`, why no review shows a file, by its name and its content; which changes stay in the session's layer.
Does not own: reading files and the rules of git (adapters.files.reviewed), what is asked (engine.session.draft_gate).
Invariants: whatever is not known to be shown is not shown. A file that is wrongly taken for unseen stays in the layer,
which is safe, so the names here need not be complete.
"""

import base64
import enum
import re
import zlib
from collections.abc import Collection, Sequence

from palyra.core.drafts.changes import Place, is_folder, place_of, with_folders
from palyra.core.drafts.known_formats import has_known_suffix, is_known_format
from palyra.core.drafts.outside import CACHE_FOLDERS, is_cache, is_run_next, is_run_outside
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.spelling import hides_something

TEXT_BYTES_MAX = 512 * 1024  # Of a text that `git diff` shows. Nobody reads more of one file.
COMPARED_BYTES_MAX = 64 * 1024  # Of a text that `palyra runs diff` shows, which is the review where there is no git.
TABLE_BYTES_MAX = 8 * 1024 * 1024
KNOWN_BYTES_MAX = 32 * 1024 * 1024  # Of an image or a PDF, which is looked through whole.
LINE_LENGTH_MAX = 5000
GAP_LENGTH_MAX = 120  # So many blanks or empty lines push what follows out of sight.
_TABLES = (".csv", ".tsv")
_GAP = re.compile(rf"[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]{{{GAP_LENGTH_MAX}}}(?=\S)")
_LINE_ENDS = re.compile("[\u2028\u2029]")  # They end a line for some languages, and show as one.
_MODULES = frozenset(
    """
    node_modules site-packages dist-packages bower_components jspm_packages web_modules .venv .virtualenv __pypackages__
    .pnpm-store .yarn .eggs .tox .nox .bundle .m2 .ivy2 .stack-work .cabal-sandbox elm-stuff deps.ez .dart_tool pods
    """.split()
)
_CACHES = frozenset({"__pycache__", ".ccache", ".sccache", ".terraform", ".next", ".nuxt", ".svelte-kit", ".angular"})
UNSEEN_FOLDERS = _MODULES | _CACHES | CACHE_FOLDERS  # By name alone, whatever they hold.
_OUTPUTS = frozenset("build dist target out _build cmake-build-debug cmake-build-release".split())
_MODULE_SUFFIXES = (".egg-info", ".dist-info", ".egg")
MARKERS = ("pyvenv.cfg", "CACHEDIR.TAG", "CMakeCache.txt")  # A tool leaves one of these in a folder that is its own.


class Unseen(enum.Enum):
    """Why no review shows a file."""

    MODULES = "of a dependency or an environment"
    CACHE = "of a cache"
    IGNORED = "ignored by git"
    UNDIFFED = "shown by git as a name only"
    OUTPUT = "a program or its plan that a build left"
    LARGE = "longer than a person reads"
    UNPRINTABLE = "text that does not show as it is"
    BINARY = "of a kind that is not shown"


def unseen_name(path: str) -> Unseen | None:
    """Returns why no review shows what has this name. Git's own folder is judged by the rules for git."""
    parts = path.casefold().rstrip("/").split("/")
    if ".git" in parts:
        return None
    if hides_something(path):
        return Unseen.UNPRINTABLE
    if any(part in _MODULES or part.endswith(_MODULE_SUFFIXES) for part in parts):
        return Unseen.MODULES
    return Unseen.CACHE if is_cache(path) or not _CACHES.isdisjoint(parts) else None


def is_output(path: str, mode: int) -> bool:
    """Tells whether a build leaves this in a folder of its own, for later commands to run. Nobody reads it there."""
    folders = path.casefold().rstrip("/").split("/")[:-1]
    return not _OUTPUTS.isdisjoint(folders) and is_run_next(path, mode)


def unseen_reason(path: str, body: bytes, size: int | None = None, *, has_git: bool = True) -> Unseen | None:
    """Returns why no review shows a file of this name and content; None if one does.

    `body` is the content, or its first `read_bytes_max(path)` bytes. `size` is then that of the whole. Without git the
    review is `palyra runs diff`, which shows less. What git ignores is the caller's to know.
    """
    named = unseen_name(path)
    if named is not None or ".git" in path.casefold().split("/"):
        return named
    length = len(body) if size is None else size
    is_table = path.casefold().endswith(_TABLES)
    text_bytes_max = TEXT_BYTES_MAX if has_git else COMPARED_BYTES_MAX
    if length <= len(body) and is_known_format(path, body):
        return None
    if b"\x00" in body:
        return Unseen.BINARY
    if length > (TABLE_BYTES_MAX if is_table else text_bytes_max) or length > len(body):
        return Unseen.LARGE
    return _unseen_text(body, is_long=is_table and length > text_bytes_max)


def read_bytes_max(path: str) -> int:
    """Returns how much of a file has to be read to tell."""
    if has_known_suffix(path):
        return KNOWN_BYTES_MAX
    return TABLE_BYTES_MAX if path.casefold().endswith(_TABLES) else TEXT_BYTES_MAX


def hold_back(
    changes: Sequence[FileChange], unseen: Collection[Place], layer_folders: Collection[Place]
) -> frozenset[Place]:
    """Returns what is not applied, but stays in the layer of the session: root and path of each change.

    A new folder is applied if something in it is. One that is in the layer already is not new.
    """
    held = {place_of(each) for each in changes if is_drop(each) or (place_of(each) in unseen and not is_new(each))}
    held |= _held_origins(changes, held)
    applied = {place_of(each) for each in changes if not is_folder(each)} - held
    needed = {(root, folder) for root, path in applied for folder in folders_above(path)}
    held |= {
        place_of(each)
        for each in changes
        if is_new(each)
        and place_of(each) not in needed
        and (place_of(each) in unseen or place_of(each) in layer_folders)
    }
    return frozenset(with_folders(changes, held)) if held else frozenset()


def _held_origins(changes: Sequence[FileChange], held: Collection[Place]) -> set[Place]:
    """Returns the deletions of what was moved or packed into something that is held back: else it would be nowhere."""
    kept = [each for each in changes if place_of(each) in held and each.after_sha256 is not None]
    hashes = {each.after_sha256 for each in kept}
    packed = {(each.root, each.path[:at]) for each in kept for at, letter in enumerate(each.path) if letter == "."}
    gone = (each for each in changes if each.kind is ChangeKind.DELETED and not is_folder(each) and not is_drop(each))
    return {place_of(each) for each in gone if each.before_sha256 in hashes or place_of(each) in packed}


def stays_asked(path: str, reason: Unseen) -> bool:
    """Tells whether a person is asked although no review shows the file: a program outside obeys it where it is."""
    return reason not in (Unseen.MODULES, Unseen.CACHE) and is_run_outside(path)


def is_new(change: FileChange) -> bool:
    return is_folder(change) and change.kind is ChangeKind.CREATED


def is_drop(change: FileChange) -> bool:
    """Tells whether the change takes away what only the session's layer holds. It changes nothing in the workspace."""
    return change.kind is ChangeKind.DELETED and change.before_sha256 is None and not is_folder(change)


def folders_above(path: str) -> list[str]:
    parts = path.rstrip("/").split("/")
    return [f"{'/'.join(parts[:count])}/" for count in range(1, len(parts))]


def pack_places(changes: Sequence[FileChange], held: Collection[Place]) -> str:
    """Packs which of the changes are held back. A bit for each change, so that a set of any size fits into an event."""
    bits = bytearray((len(changes) + 7) // 8)
    for number, change in enumerate(changes):
        if place_of(change) in held:
            bits[number >> 3] |= 1 << (number & 7)
    return base64.b64encode(zlib.compress(bytes(bits))).decode() if held else ""


def unpack_places(changes: Sequence[FileChange], packed: str) -> frozenset[Place]:
    if not packed:
        return frozenset()
    inflater = zlib.decompressobj()
    bits = inflater.decompress(base64.b64decode(packed), len(changes) // 8 + 1)
    return frozenset(
        place_of(change)
        for number, change in enumerate(changes)
        if number >> 3 < len(bits) and bits[number >> 3] >> (number & 7) & 1
    )


def part_held(
    whole: Sequence[FileChange], chosen: Sequence[FileChange], packed: str | None
) -> tuple[tuple[FileChange, ...], tuple[FileChange, ...]]:
    """Parts the chosen changes into what is applied and what stays in the layer, as the whole set was judged."""
    if packed is None:
        return tuple(chosen), ()
    held = with_folders(chosen, set(unpack_places(whole, packed)))
    applied = tuple(change for change in chosen if place_of(change) not in held)
    return applied, tuple(change for change in chosen if place_of(change) in held)


def _unseen_text(body: bytes, *, is_long: bool) -> Unseen | None:
    try:
        text = body.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return Unseen.BINARY
    if hides_something(text) or _LINE_ENDS.search(text) or _GAP.search(text):
        return Unseen.UNPRINTABLE
    lines = text.split("\n")
    if _has_gap(lines):
        return Unseen.UNPRINTABLE
    if max(map(len, lines)) > LINE_LENGTH_MAX:
        return Unseen.LARGE
    return Unseen.LARGE if is_long and not _is_table(lines) else None


def _has_gap(lines: Sequence[str]) -> bool:
    """Tells whether so many empty lines stand before another line that nobody would look for it."""
    empty_count = 0
    for line in lines:
        if line.strip():
            if empty_count >= GAP_LENGTH_MAX:
                return True
            empty_count = 0
        else:
            empty_count += 1
    return False


def _is_table(lines: Sequence[str]) -> bool:
    """Tells whether all rows have as many cells as the first, and none is a formula. Quoted cells count as text."""
    cut = [re.sub(r'"[^"]*"', "", line) for line in lines if line]
    marks = [mark for mark in ",;\t" if cut and mark in cut[0]]
    formula = re.compile(r"(?:^|[,;\t\"])[=@]")
    is_even = any(len({line.count(mark) for line in cut}) == 1 for mark in marks)
    return is_even and not any(formula.search(line) for line in lines)
