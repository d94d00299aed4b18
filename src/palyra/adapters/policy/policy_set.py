"""Sets of policies: parses and checks whole sets of Cedar policies, and keeps what is known of each.

Does not own: judging (cedar).
Invariant: a set is made whole or not at all. One policy that does not parse, does not fit the schema or has no proper
name refuses all of them, with every problem at once. A set is parsed once; judging uses the handles.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import cedarpy
import msgspec

from palyra.adapters.policy.context import MEMBERS, MODEL_MEMBERS, USE_MODEL
from palyra.adapters.policy.statements import Statement, cut, depth_of
from palyra.adapters.policy.words import ROLES, WHOLE_CONTEXT, members_used, unknown_words
from palyra.core.errors import Invalid

SOURCE_CHARACTERS_MAX = 256 * 1024  # A policy file that people can read is far smaller.
STATEMENT_CHARACTERS_MAX = 16 * 1024
DEPTH_MAX = 50  # The deepest nesting of brackets in a policy.
POLICIES_MAX = 500  # Judging costs about a microsecond for each, during which the whole daemon waits.
SAYS_LENGTH_MAX = 300
PROBLEMS_SHOWN_MAX = 20
WHAT_LENGTH_MAX = 400  # Cedar may print whole types.

_TOO_DEEP = "is nested too deeply, or has too long a chain of && or ||; use a set, or make it several policies"
NETWORK = "reach_network"  # Whether the sandbox of a shell call reaches the network.
BUNDLED = ("calls", "access", "models")  # The files of `defaults/` that are always in force.
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEFAULTS = files("palyra.adapters.policy") / "defaults"


_STRANGE_BREAK = re.compile("[\u2028\u2029\u0085\x0b\x0c]")


class PolicySource(msgspec.Struct, frozen=True):
    """One file. Its name begins the ids of its policies; the bundled policies have no such prefix."""

    name: str
    text: str


class PolicyProblem(msgspec.Struct, frozen=True):
    """Why a set was refused: where, and what is wrong."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class PolicyEntry(msgspec.Struct, frozen=True):
    """One policy. `is_call`, `is_access`, `is_network` and `is_model` tell for which kinds of question it is consulted.

    A permit that names no action does not open a sandbox to the network: a policy has to say that explicitly.
    """

    id: str
    effect: str
    says: str
    file: str
    line: int
    is_call: bool
    is_access: bool
    is_network: bool = False
    is_model: bool = False


@dataclass(frozen=True, slots=True)
class ParsedPolicies:
    """A policy set. `rank` is a policy's place in it: where several decide, the first names the verdict.

    `members` are the members of a call's context that some policy uses, `model_members` those for the use of a model.
    """

    entries: dict[str, PolicyEntry]
    rank: dict[str, int]
    sha256: str
    calls: "CallSets"
    network: cedarpy.PolicySet
    acts: cedarpy.PolicySet
    members: tuple[str, ...]
    models: cedarpy.PolicySet
    model_members: tuple[str, ...]


class PoliciesInvalid(Invalid):
    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        shown = [str(problem) for problem in problems[:PROBLEMS_SHOWN_MAX]]
        if len(problems) > PROBLEMS_SHOWN_MAX:
            shown.append(f"and {len(problems) - PROBLEMS_SHOWN_MAX} more")
        super().__init__("policy_invalid", "; ".join(shown))
        self.problems = tuple(problems)


class _Parsed(msgspec.Struct, frozen=True):
    entry: PolicyEntry
    body: dict[str, object]


class CallSets:
    """The policies by which calls are judged. Policies about one other tool alone are left out: they cannot apply.

    A tool that some policy names gets its own set when it is first called.
    """

    def __init__(self, parsed: "Sequence[_Parsed]") -> None:
        self._parsed = parsed
        self._named = frozenset(tool for one in parsed if (tool := _tool(one)) is not None)
        self._general = _policy_set(one for one in parsed if _tool(one) is None)
        self._by_tool: dict[str, cedarpy.PolicySet] = {}

    def for_tool(self, name: str) -> cedarpy.PolicySet:
        if name not in self._named:
            return self._general
        found = self._by_tool.get(name)
        if found is None:
            found = self._by_tool[name] = _policy_set(one for one in self._parsed if _tool(one) in (None, name))
        return found


def parse_policies(sources: Sequence[PolicySource] = (), bundled: Sequence[str] = BUNDLED) -> ParsedPolicies:
    """Makes a set of the bundled policies, then those of the sources in the order given.

    PoliciesInvalid names everything that is wrong.
    """
    parsed: list[_Parsed] = [*_read_bundled(*bundled)]
    problems: list[PolicyProblem] = []
    for source in sources:
        found, wrong = parse(source)
        parsed += found
        problems += wrong
    if len(parsed) > POLICIES_MAX:
        file = parsed[POLICIES_MAX].entry.file
        problems.append(PolicyProblem(file, 1, f"there are {len(parsed)} policies in all, at most {POLICIES_MAX}"))
    if problems:
        raise PoliciesInvalid(problems)
    texts = [schema_text(), *(_bundled_text(name) for name in bundled), *(source.text for source in sources)]
    names = ["", *bundled, *(f"{source.name}/" for source in sources)]
    return ParsedPolicies(
        entries={one.entry.id: one.entry for one in parsed},
        rank={one.entry.id: place for place, one in enumerate(parsed)},
        sha256=_sha256(names, texts),
        calls=CallSets([one for one in parsed if one.entry.is_call]),
        network=_policy_set(one for one in parsed if one.entry.is_network),
        acts=_policy_set(one for one in parsed if one.entry.is_access),
        members=_members((one.body for one in parsed if one.entry.is_call or one.entry.is_network), MEMBERS),
        models=_policy_set(one for one in parsed if one.entry.is_model),
        model_members=_members((one.body for one in parsed if one.entry.is_model), MODEL_MEMBERS),
    )


def parse(source: PolicySource) -> "tuple[list[_Parsed], list[PolicyProblem]]":
    """Returns the policies of a source, and what is wrong with the others."""
    file = f"{source.name}.cedar"
    if not _ID.fullmatch(source.name):
        return [], [PolicyProblem(file, 1, "a file of policies is named with letters, digits, . _ and - only")]
    if len(source.text) > SOURCE_CHARACTERS_MAX:
        return [], [PolicyProblem(file, 1, f"is longer than {SOURCE_CHARACTERS_MAX} characters")]
    return _parse(source.text, file, f"{source.name}/")


@cache
def bundled_policies() -> ParsedPolicies:
    """Returns the policies that apply where the operator says nothing; made once per process."""
    return parse_policies()


@cache
def schema() -> cedarpy.Schema:
    return cedarpy.Schema.from_str(schema_text())


@cache
def schema_text() -> str:
    return (_DEFAULTS / "palyra.cedarschema").read_text("utf-8")


@cache
def entities() -> cedarpy.Entities:
    """Returns the hierarchy: roles, and, through the schema, actions with their groups."""
    roles = [
        {"uid": {"type": "Role", "id": role}, "attrs": {}, "parents": [{"type": "Role", "id": below}] if below else []}
        for below, role in zip((None, *ROLES), ROLES, strict=False)
    ]
    return cedarpy.Entities.from_json_str(json.dumps(roles), schema())


@cache
def nothing() -> cedarpy.Entities:
    """Returns no entities, because calls are judged by their context alone."""
    return cedarpy.Entities.from_json_str("[]")


@cache
def _read_bundled(*names: str) -> "tuple[_Parsed, ...]":
    found: list[_Parsed] = []
    for name in names:
        parsed, problems = _parse(_bundled_text(name), f"{name}.cedar", "")
        if problems:
            raise PoliciesInvalid(problems)
        found += parsed
    return tuple(found)


@cache
def _bundled_text(name: str) -> str:
    return (_DEFAULTS / f"{name}.cedar").read_text("utf-8")


def _parse(text: str, file: str, prefix: str) -> "tuple[list[_Parsed], list[PolicyProblem]]":
    found: dict[str, _Parsed] = {}
    problems: list[PolicyProblem] = []
    strange = _STRANGE_BREAK.search(text)
    if strange is not None:
        # An editor shows a new line there, and Cedar goes on with a comment.
        line = text.count("\n", 0, strange.start()) + 1
        what = f"holds a line break that Cedar does not know (U+{ord(strange.group()):04X}); remove it"
        problems.append(PolicyProblem(file, line, what))
    for statement in cut(text):
        try:
            one = _parse_one(statement, file, prefix)
            if one.entry.id in found:
                raise ValueError(f"there are two policies with the id {one.entry.id}")
        except RecursionError:
            problems.append(PolicyProblem(file, statement.line, _TOO_DEEP))
        except ValueError as cause:
            problems.append(PolicyProblem(file, statement.line, " ".join(str(cause).split())[:WHAT_LENGTH_MAX]))
        else:
            found[one.entry.id] = one
    # Our cutting and Cedar's own parser both count: a policy that only one of them sees must not get lost.
    if not problems and _count(text) != len(found):
        problems.append(PolicyProblem(file, 1, "cannot be told apart into policies; write one below the other"))
    return list(found.values()), problems


def _count(text: str) -> int:
    """Counts the policies that Cedar sees in a text; -1 if it does not understand the text."""
    try:
        return len(cedarpy.PolicySet.from_str(text))
    except ValueError:
        return -1


def _parse_one(statement: Statement, file: str, prefix: str) -> "_Parsed":
    # Cedar's parser recurses for every bracket, and a stack overflow ends the process.
    if len(statement.text) > STATEMENT_CHARACTERS_MAX:
        raise ValueError(f"is longer than {STATEMENT_CHARACTERS_MAX} characters; make it several policies")
    if depth_of(statement.text) > DEPTH_MAX:
        raise ValueError(_TOO_DEEP)
    document = json.loads(cedarpy.policies_to_json_str(statement.text))
    bodies = list(document["staticPolicies"].values())
    if document["templates"] or len(bodies) != 1:
        raise ValueError("a policy with slots (?principal, ?resource) is a template, which nobody here would fill in")
    checked = cedarpy.validate_policies(statement.text, schema())
    if not checked.validation_passed:
        raise ValueError("; ".join(error.error for error in checked.errors).replace("for policy `policy0`, ", ""))
    for what in unknown_words(bodies[0]):
        raise ValueError(what)
    _require_shallow(bodies[0])
    body = bodies[0]
    effect = body["effect"]
    annotations = body.get("annotations") or {}
    name = annotations.get("id") or f"line_{statement.line}"
    if not _ID.fullmatch(name):
        raise ValueError("an @id has letters, digits, . _ and - only, and at most 64 of them")
    says = " ".join((annotations.get("says") or "").split()) or f"The policy {prefix}{name} says so."
    if len(says) > SAYS_LENGTH_MAX or not says.isprintable():
        raise ValueError(f"@says is one sentence of at most {SAYS_LENGTH_MAX} characters")
    actions = _actions(body["action"])
    entry = PolicyEntry(
        id=f"{prefix}{name}",
        effect=effect,
        says=says,
        file=file,
        line=statement.line,
        is_call=not actions or "call" in actions,
        is_access=not actions or bool(actions - {"call", NETWORK, USE_MODEL}),
        is_network=NETWORK in actions or (not actions and effect == "forbid"),
        is_model=not actions or USE_MODEL in actions,
    )
    return _Parsed(entry, body)


def _require_shallow(body: object) -> None:
    """Refuses a policy that is too deep.

    The handles are made from this form, which Cedar reads to a limited depth. A chain of && is as deep as it is long.
    """
    try:
        cedarpy.PolicySet.from_json_str(_document({"it": body}))
    except ValueError as cause:
        raise ValueError(_TOO_DEEP) from cause


def _actions(scope: dict[str, object]) -> set[str]:
    """Returns the actions a policy is about; the empty set means all of them."""
    named = [scope["entity"]] if "entity" in scope else scope.get("entities", [])
    return {one["id"] for one in named if isinstance(one, dict)} if isinstance(named, list) else set()


def _tool(one: "_Parsed") -> str | None:
    """Returns the one tool a policy is about, if its head says `resource == Tool::"…"`."""
    scope = one.body["resource"]
    if not isinstance(scope, dict) or scope.get("op") != "==":
        return None
    return str(scope["entity"]["id"]) if scope["entity"]["type"] == "Tool" else ""


def _policy_set(parsed: "Iterable[_Parsed]") -> cedarpy.PolicySet:
    bodies: dict[str, object] = {one.entry.id: one.body for one in parsed}
    return cedarpy.PolicySet.from_json_str(_document(bodies))


def _document(bodies: dict[str, object]) -> str:
    return json.dumps({"staticPolicies": bodies, "templates": {}, "templateLinks": []})


def _members(bodies: Iterable[object], known: frozenset[str]) -> tuple[str, ...]:
    used = {member for body in bodies for member in members_used(body)}
    return tuple(sorted(known if WHOLE_CONTEXT in used else used & known))


def _sha256(names: Sequence[str], texts: Sequence[str]) -> str:
    """Hashes every text behind its name and length, so that no two sets have the same bytes."""
    digest = hashlib.sha256()
    for name, text in zip(names, texts, strict=True):
        for part in (name.encode(), text.encode()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
