"""What a draft brings into reach of a repository: new pairs of path and content, and what no review would show.

Owns: reading refs, reflogs and indexes before and after, and asking git which pairs only the new ones reach.
Does not own: objects and packs (git_objects), what is done about a pair (core.drafts.git, engine.session.draft_git).
A pair is new if a new commit has it and none of its parents, or if an index has it and neither the old index nor the
last commit does. Each parent is old, or new itself, so no pair is missed.
Invariant: whatever git cannot tell asks.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from palyra.adapters.drafts.git_objects import check_objects
from palyra.adapters.drafts.git_view import GitRunner, GitUnknownError, LayeredFiles, RepositoryView, find_views
from palyra.core.drafts.git import GitReach, GitWrite, hidden
from palyra.core.drafts.git_index import lying_trees, read_parts
from palyra.core.events.draft import ChangeKind

WRITES_MAX = 200_000
LINKS_MAX = 5
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b", re.IGNORECASE)  # Git reads capitals too.
_REPLACED = re.compile(rb"^[0-9a-f]{40,64} refs/replace/.*$", re.MULTILINE | re.IGNORECASE)
_PLACE = re.compile(r"^worktrees/[^/]+/")
_LOGS, _MOVED = "logs/", b"checkout: moving from "
_HIDING = frozenset({"UNTR", "FSMN"})  # Parts of an index by which git does not look at files.
_BEGINS = "a repository begins here, so the one around it shows less"
_OTHER_TREE = "the index has another tree for it than for its files"
_FLAGS = "a flag in the index hides its changes"

Pair = tuple[int, str, str]  # Mode, id of the content, and path.


def find_git_changes(files: LayeredFiles) -> GitReach:
    writes: list[GitWrite] = []
    stores: list[tuple[str, str]] = []
    lost_count = 0
    for view in find_views(files):
        try:
            with view.git() as git:
                checked = check_objects(view, git)
                writes += (*checked.writes, *_Reach(view, git).find())
            lost_count += checked.lost_count
            if files.exists(view.root, f"{view.path}HEAD"):
                stores.append((view.root, f"{view.path}objects/"))
        except (
            GitUnknownError,
            OSError,
            ValueError,
            IndexError,
        ) as unknown:  # Also what git prints and we cannot read.
            writes.append(_untold(view, str(unknown)))
    if len(writes) > WRITES_MAX:
        writes = [hidden(each.root, each.path, each.path, f"{len(writes)} files") for each in writes[:1]]
    return GitReach(writes=tuple(writes), stores=tuple(stores), lost_count=lost_count)


def _untold(view: RepositoryView, why: str) -> GitWrite:
    return hidden(view.root, f"{view.path}HEAD", view.path, f"what comes into reach cannot be told: {why}")


class _Reach:
    """What the changed refs and indexes of one repository reach."""

    def __init__(self, view: RepositoryView, git: GitRunner) -> None:
        self._view = view
        self._git = git
        self._inside = [view.inside(change) for change in view.changes]

    def find(self) -> list[GitWrite]:
        found = list(self._hidden_files())
        fresh = self._fresh_ids()
        old = old_ids(self._view) if fresh else frozenset()
        fresh = {each: name for each, name in fresh.items() if each not in old}
        commits, trees = self._kinds(fresh)
        found += [
            hidden(self._view.root, f"{self._view.path}{name}", self._view.path, "it names an object that is not there")
            for each, name in fresh.items()
            if each not in commits and each not in trees
        ]
        pairs = self._pairs_of_commits(commits, old, fresh) if commits else {}
        base = self._view.worktree_of("")
        found += [self._write(pair, where, base) for pair, where in pairs.items()]
        for index in self._inside:
            if index == "index" or (_PLACE.match(index) and index.endswith("/index") and index.count("/") == 2):
                found += self._index_writes(index, frozenset(pairs))
        for tree, commit in trees.items():
            found += self._tree_writes(commit, fresh[tree], frozenset(pairs), base)
        return found

    def _hidden_files(self) -> Iterator[GitWrite]:
        is_new = self._view.path.endswith(".git/") and self._view.before("config") is None
        if is_new and any(change.kind is not ChangeKind.DELETED for change in self._view.changes):
            yield hidden(self._view.root, f"{self._view.path}HEAD", self._view.path, _BEGINS)
        for change, name in zip(self._view.changes, self._inside, strict=True):
            place = name.rpartition("/")[2]
            reason: str | None = None
            if name.startswith("refs/replace/"):
                reason = "it stands for another object"
            elif name in ("shallow", "info/grafts"):
                reason = "it hides parents of commits"
            elif name.startswith("rr-cache/") and place.startswith("postimage"):
                reason = "a later merge takes it over"
            elif change.kind is ChangeKind.LINKED:
                reason = "it leads somewhere else"
            elif name == "packed-refs":
                added = _lines(_REPLACED, self._view.after(name)) - _lines(_REPLACED, self._view.before(name))
                reason = "a ref stands for another object" if added else None
            if reason is not None:
                yield hidden(change.root, change.path, self._view.path, reason)

    def _fresh_ids(self) -> dict[str, str]:
        """Returns the ids that changed refs and logs name now and did not before, each with the name of such a file."""
        found: dict[str, str] = {}
        for name in sorted(filter(is_ref_file, self._inside), key=_importance):
            before = ids_in(name, self._view.before(name))
            for each in ids_in(name, self._view.after(name)) - before:
                found.setdefault(each, name)
        return found

    def _kinds(self, ids: Iterable[str]) -> tuple[set[str], dict[str, str]]:
        """Returns the ids of commits, and of trees with what they are once tags are taken off."""
        asked = list(ids)
        if not asked:
            return set(), {}
        told = self._git.run("cat-file", "--batch-check", stdin="".join(f"{each}^{{}}\n" for each in asked).encode())
        commits, trees = set[str](), dict[str, str]()
        for each, line in zip(asked, told.decode(errors="replace").splitlines(), strict=False):
            words = line.split()
            if words[1:2] == ["commit"]:
                commits.add(each)
            elif words[1:2] in (["tree"], ["blob"]):
                trees[each] = words[0]
        return commits, trees

    def _pairs_of_commits(self, commits: set[str], old: frozenset[str], names: dict[str, str]) -> dict[Pair, str]:
        asked = [*filter(commits.__contains__, names), *(f"^{each}" for each in present_ids(self._git, old))]
        words = ("log", "--stdin", "--source", "--format=%x00%H %S", "-c", "--root", "--raw", "-r", "-z", "--no-abbrev")
        printed = self._git.run(*words, "--no-renames", stdin="".join(f"{each}\n" for each in asked).encode())
        return read_log(printed, names)

    def _index_writes(self, name: str, pairs: frozenset[Pair]) -> Iterator[GitWrite]:
        place = name[: -len("index")]
        base = self._view.worktree_of(place)
        before, after = self._view.before(name), self._view.after(name)
        parts = read_parts(after, self._view.id_bytes)
        if _HIDING & parts.names - read_parts(before, self._view.id_bytes).names:
            yield hidden(self._view.root, self._view.path + name, self._view.path, "git does not look at all files")
        old, now = self._entries(before, "before"), self._entries(after, "after")
        for folder in lying_trees(parts, now, self._view.id_bytes):
            path = f"{base or ''}{folder}" or self._view.path + name
            yield hidden(self._view.root, path, self._view.path, _OTHER_TREE)
        for path in sorted(_flagged(now) - _flagged(old)):
            yield hidden(self._view.root, f"{base or ''}{path}", self._view.path, _FLAGS)
        added = now.keys() - old.keys() - pairs
        if added:
            added -= self._pairs_of_head(place)
        for pair in sorted(added):
            yield self._write(pair, f"the index of {place.rstrip('/')}" if place else "the index", base)

    def _entries(self, body: bytes | None, copy: str) -> dict[Pair, bool]:
        """Returns the entries of an index, each with whether a flag hides its changes."""
        if not body:
            return {}
        (self._git.private / copy).write_bytes(body)
        for name in {each for each in self._shared() if each.startswith("sharedindex.")}:
            shared = self._view.after(name) or self._view.before(name)
            (self._git.private / name).write_bytes(shared or b"")
        printed = self._git.run("ls-files", "-z", "-v", "--stage", index=copy)
        found: dict[Pair, bool] = {}
        for entry in printed.split(b"\0"):
            if entry:
                head, _, path = entry.partition(b"\t")
                letter, mode, blob, _ = head.decode().split()
                found[int(mode, 8), blob, _text(path)] = letter == "S" or letter.islower()
        return found

    def _shared(self) -> list[str]:
        with suppress(OSError):
            return [*os.listdir(f"{self._view.root}/{self._view.path}"), *self._inside]
        return self._inside

    def _pairs_of_head(self, place: str) -> set[Pair]:
        """Returns what the last commit holds, once the draft is applied."""
        commit = self._head(place)
        if commit is None:
            return set()
        return set(_tree_pairs(self._git.run("ls-tree", "-r", "-z", "--full-tree", commit)))

    def _head(self, place: str) -> str | None:
        said = self._view.after(f"{place}HEAD")
        for _ in range(LINKS_MAX):
            text = (said or b"").decode(errors="replace").strip()
            if not text.startswith("ref: "):
                return text if _ID.fullmatch(text.encode()) else None
            name = text[5:]
            said = self._view.after(name)
            if said is None:
                found = re.search(
                    rb"^([0-9a-f]{40,64}) " + re.escape(name.encode()) + rb"$", self._packed(), re.M | re.I
                )
                return found[1].decode() if found else None
        return None

    def _packed(self) -> bytes:
        return self._view.after("packed-refs") or b""

    def _tree_writes(self, tree: str, name: str, pairs: frozenset[Pair], base: str | None) -> Iterator[GitWrite]:
        """Yields what a ref reaches that names no commit: a tree, or content without a path."""
        if not self._git.tell("cat-file", "-e", f"{tree}^{{tree}}"):
            return  # Content without a path is written to no file.
        for pair in _tree_pairs(self._git.run("ls-tree", "-r", "-z", "--full-tree", tree)):
            if pair not in pairs:
                yield self._write(pair, name, base)

    def _write(self, pair: Pair, where: str, base: str | None) -> GitWrite:
        mode, blob, path = pair
        is_named = not any("\udc80" <= letter <= "\udcff" or letter == "\n" for letter in path)
        return GitWrite(
            root=self._view.root,
            path=f"{base or ''}{path}" if is_named else f"{base or ''}{path!a}",
            mode=mode,
            blob=blob,
            repository=self._view.path,
            where=where,
            base=base or "",
            is_file=base is not None and is_named,
            is_hidden=not is_named,
        )


def is_ref_file(name: str) -> bool:
    """Tells whether git finds commits through this file of a repository: a ref, a log, or a name such as MERGE_HEAD."""
    name = _PLACE.sub("", name)
    is_pseudo = "/" not in name and (name.endswith("HEAD") or name == "AUTO_MERGE")
    return name.startswith(("refs/", _LOGS)) or name == "packed-refs" or is_pseudo


def _importance(name: str) -> tuple[int, str]:
    """A branch says more than a log about where something comes from."""
    inner = _PLACE.sub("", name)
    return (0 if inner.startswith("refs/") else 2 if inner.startswith(_LOGS) else 1), name


def ids_in(name: str, body: bytes | None) -> set[str]:
    """Returns the ids that a file of refs names. Git reads none in the words of a log, except for `git checkout -`."""
    text = body or b""
    if _PLACE.sub("", name).startswith(_LOGS):
        lines = text.split(b"\n")
        text = b"\n".join(line if _MOVED in line else line.partition(b"\t")[0] for line in lines)
    return {each.decode().lower() for each in _ID.findall(text) if each.strip(b"0")}


def old_ids(view: RepositoryView) -> frozenset[str]:
    """Returns all that the refs, logs and pseudo-refs of a repository named before the draft."""
    found: set[str] = set()
    for folder in ("refs", "logs", "worktrees"):
        for name in view.names_before(folder):
            if is_ref_file(name):
                found |= ids_in(name, view.before(name))
    with suppress(OSError):
        for name in os.listdir(f"{view.root}/{view.path}"):
            if is_ref_file(name):
                found |= ids_in(name, view.before(name))
    return frozenset(found)


def present_ids(git: GitRunner, ids: frozenset[str]) -> list[str]:
    """Returns the ids of commits. Of an old log, git may have thrown some away."""
    if not ids:
        return []
    asked = "".join(f"{each}^{{}}\n" for each in sorted(ids)).encode()
    told = git.run("cat-file", "--batch-check", stdin=asked).decode(errors="replace").splitlines()
    return [line.split()[0] for line in told if " commit " in line]


def read_log(printed: bytes, names: dict[str, str]) -> dict[Pair, str]:
    """Returns the pairs of `git log --raw -c -z`, each with the file through which its commit is reached."""
    found: dict[Pair, str] = {}
    where = ""
    tokens = iter(printed.split(b"\0"))
    for token in tokens:
        plain = token.lstrip(b"\n")
        if plain.startswith(b":"):
            path = _text(next(tokens, b""))
            words = plain.lstrip(b":").split()
            parents = len(plain) - len(plain.lstrip(b":"))
            mode, blob = int(words[parents], 8), words[2 * parents + 1].decode()
            if mode:
                found.setdefault((mode, blob, path), where)
        elif plain:
            source = plain.decode(errors="replace").split()[-1]
            where = names.get(source, source)
    return found


def _tree_pairs(printed: bytes) -> Iterator[Pair]:
    for entry in printed.split(b"\0"):
        if entry:
            head, _, path = entry.partition(b"\t")
            mode, _, blob = head.decode().split()
            yield int(mode, 8), blob, _text(path)


def _flagged(entries: dict[Pair, bool]) -> set[str]:
    return {path for (_, _, path), is_flagged in entries.items() if is_flagged}


def _lines(pattern: re.Pattern[bytes], body: bytes | None) -> set[bytes]:
    return set(pattern.findall(body or b""))


def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")
