"""Turns our questions into Cedar requests of the schema. Does not own: the schema's words (defaults/)."""

import math
import posixpath
from collections.abc import Callable, Iterable, Mapping

import msgspec

from palyra.core.drafts.outside import is_cache, is_git_data, is_run_next, is_run_outside
from palyra.core.ids import digest_call
from palyra.core.sensitive_files import is_git_run, is_instruction
from palyra.core.taint import taint_elsewhere
from palyra.ports.policy import ApiQuestion, ModelQuestion, PolicyQuestion

REQUEST_BYTES_MAX = 512 * 1024  # Nobody could look at a call that names more than this.

USE_MODEL = "use_model"

Request = dict[str, object]


def call_request(question: PolicyQuestion, context: dict[str, object], action: str = "call") -> Request:
    return {
        "principal": {"type": "Principal", "id": question.principal},
        "action": {"type": "Action", "id": action},
        "resource": {"type": "Tool", "id": question.spec.name},
        "context": _encode(context),
    }


def call_context(question: PolicyQuestion, now_ms: int, members: Iterable[str]) -> dict[str, object]:
    """Returns the context members that some policy uses: computing the others would cost more than judging."""
    made = {name: _MEMBERS[name](question, now_ms) for name in members}
    return {name: value for name, value in made.items() if value is not None}


def model_request(question: ModelQuestion, now_ms: int, members: Iterable[str]) -> Request:
    """Returns the request with the context members that some policy uses, as `call_context` does."""
    made = {name: _MODEL_MEMBERS[name](question, now_ms) for name in members}
    return {
        "principal": {"type": "Principal", "id": question.principal},
        "action": {"type": "Action", "id": USE_MODEL},
        "resource": {"type": "Model", "id": question.model},
        "context": _encode({name: value for name, value in made.items() if value is not None}),
    }


def act_request(question: ApiQuestion) -> Request:
    owner = question.owner if question.owner is not None else question.principal
    return {
        "principal": {"type": "Principal", "id": question.principal},
        "action": {"type": "Action", "id": question.action},
        "resource": {"type": "Principal", "id": owner},
        "context": _encode({"role": _entity("Role", question.role), "own": owner == question.principal}),
    }


def folders_of(paths: tuple[str, ...]) -> list[str]:
    """Returns every folder that contains all the paths. A path that leaves the workspace, or climbs, lies in none."""
    shared: list[str] | None = None
    for path in paths:
        folders = _ancestors(path)
        shared = folders if shared is None else [folder for folder in shared if folder in folders]
    return shared or []


def _ancestors(path: str) -> list[str]:
    clean = posixpath.normpath(path)
    parts = clean.split("/")[:-1]
    if clean.startswith(("/", "..")):
        return []
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _instructs(path: str) -> bool:
    """Leaves out what git and tools store below folders whose names begin with a dot."""
    return is_instruction(path) and not is_git_data(path) and not is_cache(path)


def _names(asked: PolicyQuestion) -> tuple[str, ...]:
    """Returns the paths, and the links that lead to them."""
    return (*asked.nature.paths, *asked.nature.linked_names)


def _is_run_outside(asked: PolicyQuestion) -> bool:
    return any(is_run_outside(path, is_link=asked.nature.makes_link) for path in _names(asked))


def _is_run_next(asked: PolicyQuestion) -> bool:
    mode = 0o111 if asked.nature.makes_executable else 0
    return any(is_run_next(path, mode) for path in _names(asked))


def _entity(kind: str, name: str) -> dict[str, object]:
    return {"__entity": {"type": kind, "id": name}}


def _entities(kind: str, names: Iterable[str]) -> list[dict[str, object]]:
    return [_entity(kind, name) for name in names]


def _cents(usd: float | None) -> int | None:
    """Rounds down, so that the rest is never overstated."""
    return None if usd is None else math.floor(usd * 100)


# How each member of a call's context is made, except `approved`. None leaves out an optional member.
_MEMBERS: Mapping[str, Callable[[PolicyQuestion, int], object]] = {
    "agent": lambda asked, _: _entity("Agent", asked.agent),
    "session": lambda asked, _: _entity("Session", asked.session_id),
    "channel": lambda asked, _: _entity("Channel", asked.channel),
    "skills": lambda asked, _: _entities("Skill", asked.skills),
    "tool": lambda asked, _: asked.spec.name,
    "runtime": lambda asked, _: asked.spec.runtime.value,
    "capabilities": lambda asked, _: [each.value for each in asked.spec.capabilities | asked.nature.capabilities],
    "risk": lambda asked, _: asked.spec.risk.value,
    "effect_class": lambda asked, _: asked.nature.effect_class.value,
    "taint": lambda asked, _: taint_elsewhere(asked.spec, asked.taint),
    "in_workspace": lambda asked, _: asked.nature.is_in_workspace,
    "paths": lambda asked, _: asked.nature.paths,
    "folders": lambda asked, _: folders_of(asked.nature.paths),
    "is_instruction_file": lambda asked, _: any(_instructs(path) for path in _names(asked)),
    "is_run_outside": lambda asked, _: _is_run_outside(asked),
    "is_run_next": lambda asked, _: _is_run_next(asked),
    "is_unseen": lambda asked, _: asked.nature.is_unseen,
    "is_wide_dot_file": lambda asked, _: asked.nature.is_wide_dot_file,
    "is_git_run": lambda asked, _: any(is_git_run(path) for path in _names(asked)),
    "host": lambda asked, _: asked.nature.host,
    "is_known_address": lambda asked, _: asked.is_known_address,
    "commands": lambda asked, _: asked.nature.commands,
    "budget_left_cents": lambda asked, _: _cents(asked.budget_left_usd),
    "arguments_sha256": lambda asked, _: digest_call(asked.spec.name, asked.arguments),
    "now_ms": lambda _, now_ms: now_ms,
}
MEMBERS = frozenset(_MEMBERS)
_MODEL_MEMBERS: Mapping[str, Callable[[ModelQuestion, int], object]] = {
    "agent": lambda asked, _: _entity("Agent", asked.agent),
    "model": lambda asked, _: asked.model,
    "provider": lambda asked, _: asked.provider,
    "origin": lambda asked, _: asked.origin,
    "taint": lambda asked, _: asked.taint,
    "is_named": lambda asked, _: asked.is_named,
    "budget_left_cents": lambda asked, _: _cents(asked.budget_left_usd),
    "now_ms": lambda _, now_ms: now_ms,
}
MODEL_MEMBERS = frozenset(_MODEL_MEMBERS)


def _encode(context: dict[str, object]) -> str:
    encoded = msgspec.json.encode(context)
    if len(encoded) > REQUEST_BYTES_MAX:
        raise ValueError(f"the call is described by more than {REQUEST_BYTES_MAX} bytes")
    return encoded.decode()
