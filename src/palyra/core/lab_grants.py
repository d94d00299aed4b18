"""Finds grants worth giving: the narrowest terms that cover what people allowed again and again.

Does not own: giving the grants (a person does), whether a call is covered (grants).
Invariants: a proposal is never wider than one folder whose files were asked about, or one exact call. It covers no call
that a person denied. Its taint was shown when the person allowed the calls. It always expires.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from palyra.core.events.tool import ApprovalStatus, Constraint, Scope
from palyra.core.grants import Operator
from palyra.core.ids import Principal, digest_call
from palyra.core.lab import AnswerCount, LabAnswers, Proposal, has_masked_secret
from palyra.core.offers import make_options

ALLOWED_MIN = 3  # Fewer answers are no habit yet.
TTL_S_DEFAULT = 7 * 24 * 3600
SHAPES_MAX = 10_000  # Kept at once; calls of further shapes are counted, and nothing is proposed for them.
DENIALS_MAX = 2_000  # Of one tool for one person and agent; if there are more, nothing is proposed for it.
PATHS_KEPT_MAX = 200  # Kept of one shape.
EXAMPLE_BYTES_MAX = 4_096  # The size of the arguments in the one prompt that is kept of a shape.
_PATH = "path"
_WHOLE_TREES = frozenset({".", "/", "//"})  # Never proposed as a folder: such a grant would open everything.


class GrantProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A grant that would have answered `answers.prompts_count` prompts. `free` lists arguments that may have any value.

    At most one of `arguments_sha256`, `file` and `folder` is set: the narrowest thing that a policy could name. File
    and folder are written as policies see them, relative to the workspace. `example` is one of the prompts.
    """

    tool: str
    principal: Principal
    agent: str
    taint: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    free: tuple[str, ...]
    arguments_sha256: str | None
    file: str | None
    folder: str | None
    example: Proposal | None
    paths_seen: tuple[str, ...]
    paths_count: Annotated[int, msgspec.Meta(ge=0)]
    answers: LabAnswers
    first_at_ms: int
    last_at_ms: int
    expires_at_ms: int


class GrantHistory:
    """Receives every prompt in order; gives proposals at the end."""

    def __init__(self) -> None:
        self._shapes: dict[_Key, _Habit] = {}
        self._denials: dict[_Who, _Denials] = {}
        self._left_out_count = 0
        self._masked_count = 0

    @property
    def left_out_count(self) -> int:
        """Counts the prompts of shapes that came after SHAPES_MAX others."""
        return self._left_out_count

    @property
    def masked_count(self) -> int:
        """Counts the prompts about calls that hold a secret: nothing is proposed from them."""
        return self._masked_count

    def add(self, proposal: Proposal) -> None:
        if proposal.answer is None:
            return
        if proposal.answer is ApprovalStatus.DENIED:
            self._denials.setdefault(_who(proposal), _Denials()).add(proposal)
        if has_masked_secret(proposal.arguments):
            self._masked_count += 1
            return
        key = _key(proposal)
        habit = self._shapes.get(key)
        if habit is None and len(self._shapes) >= SHAPES_MAX:
            self._left_out_count += 1
            return
        if habit is None:
            habit = self._shapes[key] = _Habit(proposal)
        habit.add(proposal)

    def proposals(self, now_ms: int, ttl_s: int = TTL_S_DEFAULT) -> tuple[GrantProposal, ...]:
        """Returns the proposals; those that would have saved most prompts come first."""
        expires_at_ms = now_ms + ttl_s * 1000
        found = [
            habit.proposal(key, expires_at_ms)
            for key, habit in self._shapes.items()
            if habit.allowed_count >= ALLOWED_MIN and not self._is_denied(key)
        ]
        return tuple(sorted(_merged(found), key=lambda each: (-each.answers.prompts_count, each.tool, each.paths_seen)))

    def _is_denied(self, key: "_Key") -> bool:
        denials = self._denials.get(key.who)
        return denials is not None and denials.touch(key)


def names_of(proposal: GrantProposal) -> tuple[str, ...]:
    """Returns the names of the arguments that its calls have, all of them and no others."""
    return tuple(sorted({*proposal.free, *(each.argument for each in proposal.constraints if each.argument)}))


def folder_of(proposal: GrantProposal) -> str | None:
    """Returns the folder that its terms open; None if they open one exact path or none at all."""
    found = (each.value for each in proposal.constraints if each.operator == Operator.UNDER.value)
    return next(found, None)


class _Who(msgspec.Struct, frozen=True):
    principal: Principal
    agent: str
    tool: str


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """A shape: the person and agent, the arguments, the taint, and the folder, path or exact call it is about."""

    who: _Who
    names: tuple[str, ...]
    taint: tuple[str, ...]
    folder: str | None = None
    path: str | None = None
    digest: str | None = None


class _Habit:
    """What the prompts of one shape had in common."""

    def __init__(self, first: Proposal) -> None:
        self._constraints = _exact(first)
        self._digest = digest_call(first.tool, first.arguments)
        is_small = len(msgspec.json.encode(first.arguments)) <= EXAMPLE_BYTES_MAX
        self._example = first if is_small else None
        self._places: set[str] = set()
        self._paths: dict[str, None] = {}
        self._has_more_paths = False
        self._answers = AnswerCount()
        self._first_at_ms = self._last_at_ms = first.at_ms
        self.allowed_count = 0

    def add(self, proposal: Proposal) -> None:
        exact = _exact(proposal)
        self._constraints = {name: one for name, one in self._constraints.items() if exact.get(name) == one}
        if len(self._places) < PATHS_KEPT_MAX:
            self._places.update(proposal.nature.paths)
        path = _path_in(proposal)
        if path is not None and (path in self._paths or len(self._paths) < PATHS_KEPT_MAX):
            self._paths[path] = None
        else:
            self._has_more_paths = self._has_more_paths or path is not None
        self._answers.add(proposal.answer)
        self._first_at_ms = min(self._first_at_ms, proposal.at_ms)
        self._last_at_ms = max(self._last_at_ms, proposal.at_ms)
        self.allowed_count += proposal.answer is ApprovalStatus.ALLOWED

    def proposal(self, key: _Key, expires_at_ms: int) -> GrantProposal:
        terms = dict(self._constraints)
        if key.folder is not None and _PATH not in terms:
            terms[_PATH] = Constraint(argument=_PATH, operator=Operator.UNDER.value, value=key.folder)
        free = tuple(name for name in key.names if name not in terms)
        is_exact = not free and all(each.operator != Operator.UNDER.value for each in terms.values())
        return GrantProposal(
            tool=key.who.tool,
            principal=key.who.principal,
            agent=key.who.agent,
            taint=key.taint,
            constraints=tuple(terms[name] for name in sorted(terms, key=lambda name: (name == "", name))),
            free=free,
            arguments_sha256=self._digest if is_exact else None,
            file=None if is_exact or _PATH not in self._constraints else self._file(),
            folder=None if is_exact or _PATH in self._constraints else self._folder(),
            example=self._example,
            paths_seen=tuple(sorted(self._paths)),
            paths_count=len(self._paths) + self._has_more_paths,
            answers=self._answers.result(),
            first_at_ms=self._first_at_ms,
            last_at_ms=self._last_at_ms,
            expires_at_ms=expires_at_ms,
        )

    def _file(self) -> str | None:
        return next(iter(self._places)) if len(self._places) == 1 else None

    def _folder(self) -> str | None:
        """Returns the folder that all paths lie in directly; None if that would be a root or another tree."""
        folders = {posixpath.dirname(posixpath.normpath(place)) for place in self._places}
        folder = folders.pop() if len(folders) == 1 else ""
        return folder if folder and not folder.startswith(("/", "..")) else None


class _Denials:
    """What one person denied of one tool: paths, whatever the other arguments were, and exact calls."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._digests: set[str] = set()
        self._has_more = False

    def add(self, proposal: Proposal) -> None:
        path = _path_in(proposal)
        known = self._digests if path is None else self._paths
        self._has_more = self._has_more or len(known) >= DENIALS_MAX
        if len(known) < DENIALS_MAX:
            known.add(digest_call(proposal.tool, proposal.arguments) if path is None else path)

    def touch(self, key: _Key) -> bool:
        if self._has_more:
            return True
        if key.folder is not None:
            return any(_is_under(path, key.folder) for path in self._paths)
        if key.path is not None:
            return posixpath.normpath(key.path) in self._paths
        return key.digest in self._digests


def _who(proposal: Proposal) -> _Who:
    return _Who(proposal.principal, proposal.agent, proposal.tool)


def _key(proposal: Proposal) -> _Key:
    names, taint = tuple(sorted(proposal.arguments)), tuple(sorted(set(proposal.taint)))
    path = _path_in(proposal)
    if path is None:
        digest = digest_call(proposal.tool, proposal.arguments)
        return _Key(who=_who(proposal), names=names, taint=taint, digest=digest)
    folder = posixpath.dirname(path) or "."
    if folder in _WHOLE_TREES:
        # The path stays as written: another spelling of it is another shape, so that terms stay exact.
        return _Key(who=_who(proposal), names=names, taint=taint, path=str(proposal.arguments[_PATH]))
    return _Key(who=_who(proposal), names=names, taint=taint, folder=folder)


def _path_in(proposal: Proposal) -> str | None:
    """Returns the path that a call said it touches, as grants compare it; None where the exact call counts."""
    path = proposal.arguments.get(_PATH)
    if not proposal.nature.paths or not isinstance(path, str) or not path:
        return None
    normal = posixpath.normpath(path)
    return None if normal.startswith("..") else normal


def _exact(proposal: Proposal) -> dict[str, Constraint]:
    """Returns one constraint an argument, and under the empty name one against others: as `this call only` offers."""
    options = make_options(proposal.tool, proposal.arguments)
    once = next(option for option in options if option.scope is Scope.ONCE)
    return {constraint.argument: constraint for constraint in once.constraints}


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _merged(found: Iterable[GrantProposal]) -> list[GrantProposal]:
    """Drops proposals that another one covers whole, and adds their prompts to that one."""
    kept: list[GrantProposal] = []
    for each in sorted(found, key=_width, reverse=True):
        wider = next((index for index, other in enumerate(kept) if _includes(other, each)), None)
        if wider is None:
            kept.append(each)
        else:
            kept[wider] = _joined(kept[wider], each)
    return kept


def _width(proposal: GrantProposal) -> tuple[int, int, int]:
    folder = folder_of(proposal)
    depth = -len(folder.split("/")) if folder is not None else -1_000_000
    return depth, len(proposal.free), len(proposal.taint)


def _includes(wide: GrantProposal, narrow: GrantProposal) -> bool:
    """Tells whether the wide proposal covers everything that the narrow one covers."""
    is_same = (wide.tool, wide.principal, wide.agent) == (narrow.tool, narrow.principal, narrow.agent)
    if not is_same or not set(narrow.taint) <= set(wide.taint):
        return False
    terms = {constraint.argument: constraint for constraint in narrow.constraints}
    return all(_implies(terms, constraint, narrow.paths_seen) for constraint in wide.constraints)


def _implies(terms: Mapping[str, Constraint], wanted: Constraint, paths: tuple[str, ...]) -> bool:
    given = terms.get(wanted.argument)
    if given is None or given == wanted or wanted.operator != Operator.UNDER.value:
        return given == wanted
    below = [given.value] if given.operator == Operator.UNDER.value else list(paths)
    return bool(below) and all(_is_under(each, wanted.value) for each in below)


def _joined(wide: GrantProposal, narrow: GrantProposal) -> GrantProposal:
    answers = LabAnswers(
        allowed_count=wide.answers.allowed_count + narrow.answers.allowed_count,
        denied_count=wide.answers.denied_count + narrow.answers.denied_count,
        unanswered_count=wide.answers.unanswered_count + narrow.answers.unanswered_count,
    )
    paths = tuple(sorted({*wide.paths_seen, *narrow.paths_seen}))
    return msgspec.structs.replace(
        wide,
        answers=answers,
        paths_seen=paths,
        paths_count=max(len(paths), wide.paths_count, narrow.paths_count),
        first_at_ms=min(wide.first_at_ms, narrow.first_at_ms),
        last_at_ms=max(wide.last_at_ms, narrow.last_at_ms),
    )
