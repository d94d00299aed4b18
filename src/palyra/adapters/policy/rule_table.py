"""The built-in rule table. Owns: the default verdict on every call, first matching row first. Not: grants (engine.gate).

Invariants (L6): a call that no row matches is denied (`no_rule`); a row that cannot be evaluated denies in its own name;
nothing is raised. The table is data: its canonical text names every row with its conditions, and every verdict carries
the hash of that text. It stands in for Cedar and speaks through the same port.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from palyra.core.events.tool import EffectClass, PolicySnapshot, Verdict
from palyra.core.tools import Capability, Runtime
from palyra.ports.policy import PolicyAnswer, PolicyQuestion

# Files that tell an agent what to do, or run on their own. Compared without case: some file systems do not tell it.
INSTRUCTION_FILES = frozenset({"agents.md", "claude.md", "gemini.md", "memory.md", "skill.md"})
INSTRUCTION_FOLDERS = frozenset({"hooks"})
# Folders whose files git runs outside every sandbox. Writing there is executing later, so it asks as executing does.
GIT_RUN_FOLDERS = frozenset({".git", ".githooks", ".husky"})

Condition = Callable[[PolicyQuestion], bool]

_CAPABLE_OF_HARM = frozenset(
    {Capability.NETWORK, Capability.PROCESS_EXEC, Capability.MESSAGE_SEND, Capability.MEMORY_WRITE}
)
_EVALUATION_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Rule(msgspec.Struct, frozen=True):
    """A row: it matches when all its conditions hold. The sentence is what people and the model are told."""

    name: str
    verdict: Verdict
    when: tuple[str, ...]
    sentence: str


def _is_tainted(question: PolicyQuestion) -> bool:
    return bool(question.taint)


def _is_outside(question: PolicyQuestion) -> bool:
    return not question.nature.is_in_workspace


def _reads(question: PolicyQuestion) -> bool:
    return question.nature.effect_class is EffectClass.READ_ONLY


def _is_once(question: PolicyQuestion) -> bool:
    return question.nature.effect_class is EffectClass.ONCE


def _is_internal(question: PolicyQuestion) -> bool:
    return question.spec.runtime is Runtime.INTERNAL


def _is_foreign(question: PolicyQuestion) -> bool:
    return question.spec.runtime in (Runtime.MCP, Runtime.WASM)


def _needs_nothing(question: PolicyQuestion) -> bool:
    return not question.spec.capabilities


def _only_reads_files(question: PolicyQuestion) -> bool:
    return question.spec.capabilities == {Capability.FS_READ}


def _only_touches_files(question: PolicyQuestion) -> bool:
    files = {Capability.FS_READ, Capability.FS_WRITE}
    return Capability.FS_WRITE in question.spec.capabilities and question.spec.capabilities <= files


def _names_its_paths(question: PolicyQuestion) -> bool:
    return bool(question.nature.paths)


def _could_harm(question: PolicyQuestion) -> bool:
    return bool(question.spec.capabilities & _CAPABLE_OF_HARM)


def _writes_instructions(question: PolicyQuestion) -> bool:
    return _writes(question) and any(_is_instruction(path) for path in question.nature.paths)


def _writes_what_git_runs(question: PolicyQuestion) -> bool:
    return _writes(question) and any(set(_parts(path)) & GIT_RUN_FOLDERS for path in question.nature.paths)


def _can(capability: Capability) -> Condition:
    return lambda question: capability in question.spec.capabilities


CONDITIONS: Mapping[str, Condition] = {
    "tainted": _is_tainted,
    "outside_workspace": _is_outside,
    "effect_read_only": _reads,
    "effect_once": _is_once,
    "runtime_internal": _is_internal,
    "runtime_foreign": _is_foreign,
    "no_capabilities": _needs_nothing,
    "only_fs_read": _only_reads_files,
    "only_fs": _only_touches_files,
    "has_paths": _names_its_paths,
    "can_send_execute_or_remember": _could_harm,
    "writes_instruction_file": _writes_instructions,
    "writes_what_git_runs": _writes_what_git_runs,
    **{f"can_{capability.value}": _can(capability) for capability in Capability},
}

_ALLOW, _ASK, _DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY

TABLE: tuple[Rule, ...] = (
    Rule("outside_workspace", _DENY, ("outside_workspace",), "Tools reach nothing outside the workspace."),
    Rule(
        "tainted_act",
        _ASK,
        ("tainted", "can_send_execute_or_remember"),
        "There is content from outside in this session, so whatever sends, executes or remembers asks.",
    ),
    Rule(
        "tainted_instructions",
        _ASK,
        ("tainted", "writes_instruction_file"),
        "There is content from outside in this session, so writing what instructs agents or runs on its own asks.",
    ),
    Rule(
        "git_runs",
        _ASK,
        ("writes_what_git_runs",),
        "Git may run what is written there, outside every sandbox, so writing it asks.",
    ),
    Rule("process_exec", _ASK, ("can_process_exec",), "Running a program asks."),
    Rule("message_send", _ASK, ("can_message_send",), "Sending a message asks."),
    Rule("memory_write", _ASK, ("can_memory_write",), "Writing memory asks."),
    Rule("secrets_read", _ASK, ("can_secrets_read",), "Reading a secret asks."),
    Rule("network", _ASK, ("can_network",), "Reaching the network asks."),
    Rule("foreign_tool", _ASK, ("runtime_foreign",), "A tool that is not ours asks until the operator says otherwise."),
    Rule("once_effect", _ASK, ("effect_once",), "What cannot be repeated safely asks."),
    Rule(
        "workspace_read",
        _ALLOW,
        ("effect_read_only", "only_fs_read", "has_paths"),
        "Reading inside the workspace is free.",
    ),
    Rule("workspace_write", _ALLOW, ("only_fs", "has_paths"), "Writing inside the workspace is free."),
    Rule(
        "internal_read",
        _ALLOW,
        ("effect_read_only", "runtime_internal", "no_capabilities"),
        "A built-in tool that only looks is free.",
    ),
)

NO_RULE = "no_rule"


class RuleTable:
    """The policy. Rows and conditions are parameters so that tests can break them; the daemon uses the defaults."""

    def __init__(self, rules: Sequence[Rule] = TABLE, conditions: Mapping[str, Condition] = CONDITIONS) -> None:
        self._rules = tuple(rules)
        self._conditions = conditions
        self._sha256 = hashlib.sha256(canonical_text(self._rules).encode()).hexdigest()

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        for rule in self._rules:
            try:
                is_match = all(self._conditions[name](question) for name in rule.when)
            except _EVALUATION_ERRORS as cause:
                reason = (
                    f"The rule {rule.name} could not be evaluated ({type(cause).__name__}), so the call is refused."
                )
                return self._answer(Verdict.DENY, rule.name, reason)
            if is_match:
                return self._answer(rule.verdict, rule.name, rule.sentence)
        return self._answer(Verdict.DENY, NO_RULE, "No rule speaks of this call, so it is refused.")

    def _answer(self, verdict: Verdict, rule: str, reason: str) -> PolicyAnswer:
        snapshot = PolicySnapshot(sha256=self._sha256, policies=(rule,))
        return PolicyAnswer(verdict=verdict, rule=rule, reason=reason, snapshot=snapshot)


def canonical_text(rules: Sequence[Rule]) -> str:
    """One line a row, and the lists of names the conditions use. What is hashed, and what people may read."""
    names = (("instruction_files", INSTRUCTION_FILES), ("instruction_folders", INSTRUCTION_FOLDERS))
    lists = [f"{name} = {' '.join(sorted(words))}" for name, words in (*names, ("git_run_folders", GIT_RUN_FOLDERS))]
    rows = [f"{rule.name}: {rule.verdict.value} when {' and '.join(rule.when)}. {rule.sentence}" for rule in rules]
    return "\n".join([*lists, *rows, f"{NO_RULE}: deny."])


def _writes(question: PolicyQuestion) -> bool:
    return Capability.FS_WRITE in question.spec.capabilities


def _is_instruction(path: str) -> bool:
    """Named so, below a folder of hooks, or a dot-file or below a dot-folder."""
    parts = _parts(path)
    is_named_so = bool(parts) and parts[-1] in INSTRUCTION_FILES
    return is_named_so or any(part in INSTRUCTION_FOLDERS or part.startswith(".") for part in parts)


def _parts(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part not in ("", ".")]
