"""Checks what settings say about each other: names that must exist or be unique, and keys that go together or not.

It works on the raw tables, so that a wrong value in one place does not hide a wrong reference in another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from palyra.config.lines import Path
from palyra.config.problems import ConfigProblems, suggestion
from palyra.core.channels.model import ANYONE
from palyra.core.channels.webhook_fields import FIELDS
from palyra.core.redaction.names import Belief, classify_name

PROVIDER_KINDS = ("openai-chat", "openai-responses", "anthropic-messages", "pydantic-ai", "local", "demo", "scripted")
# Names of servers that people write for a kind. All of them speak the protocol of OpenAI's chat.
CHAT_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "lm-studio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "llama-cpp": "http://127.0.0.1:8080/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
}
EMBEDDERS = ("bundled", "minilm")
_CHANNEL_NEEDS = {
    "discord": ("token",),
    "slack": ("token",),
    "telegram": ("token",),
    "webhook": ("secret",),
    "email": ("imap", "smtp"),
}

Table = Mapping[str, object]
Say = Callable[[Path, str], None]


def check_references(document: Table, report: ConfigProblems) -> None:
    say = report.add
    for section in ("provider", "model", "route", "agent", "mcp", "routine", "channel"):
        _check_unique(document, section, say)
    for section, key, target in (
        ("model", "provider", "provider"),
        ("route", "models", "model"),
        ("agent", "route", "route"),
        ("channel", "agent", "agent"),
        ("routine", "channel", "channel"),
    ):
        _check_named(document, (section, key), target, say)
    _check_routine_agents(document, say)
    _check_embedder(document, say)
    _check_default_agent(document, say)
    _check_kinds(document, say)
    for path, table in _entries(document, "budget"):
        _require_any(table, path, ("limit_usd", "limit_tokens"), say)
    for path, table in _entries(document, "mcp"):
        _require_one(table, path, ("command", "url"), say)
        _check_variables(table, path, say)
    for path, table in _entries(document, "routine"):
        _require_one(table, path, ("every_s", "cron", "at"), say)
    _check_routine_channels(document, say)
    for path, table in _entries(document, "channel"):
        _check_channel(table, path, say)


def _check_unique(document: Table, section: str, say: Say) -> None:
    seen: set[str] = set()
    for path, table in _entries(document, section):
        name = table.get("name")
        if isinstance(name, str) and name in seen:
            say((*path, "name"), f"another {section} has this name already")
        elif isinstance(name, str):
            seen.add(name)


def _check_named(document: Table, source: tuple[str, str], target: str, say: Say) -> None:
    section, key = source
    known = _names(document, target)
    for path, table in _entries(document, section):
        for place, name in _mentioned((*path, key), table.get(key)):
            if name not in known:
                say(place, f"there is no [[{target}]] of this name{suggestion(name, known)}")


def _check_routine_agents(document: Table, say: Say) -> None:
    """A file without agents has the agent main."""
    known = _names(document, "agent") or ["main"]
    for path, table in _entries(document, "routine"):
        name = table.get("agent")
        if isinstance(name, str) and name not in known:
            say((*path, "agent"), f"there is no [[agent]] of this name{suggestion(name, known)}")


def _check_routine_channels(document: Table, say: Say) -> None:
    """A routine speaks to a conversation, which its channel names."""
    silent = {table.get("name") for _, table in _entries(document, "channel") if "conversation" not in table}
    for path, table in _entries(document, "routine"):
        if table.get("channel") in silent:
            say((*path, "channel"), "this [[channel]] names no conversation for answers of routines")


def _mentioned(path: Path, value: object) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        yield from (((*path, index), each) for index, each in enumerate(value) if isinstance(each, str))


def check_embedder(name: str, models: Sequence[str], say: Callable[[str], None]) -> None:
    known = [*EMBEDDERS, *models]
    if name not in known:
        say(f"must be {' or '.join(EMBEDDERS)}, or name a [[model]]{suggestion(name, known)}")
    elif list(models) == [name]:
        say(f"{name} is the only [[model]], and it answers no questions; add one that does")


def _check_embedder(document: Table, say: Say) -> None:
    memory = document.get("memory")
    name = memory.get("embedder") if isinstance(memory, dict) else None
    if isinstance(name, str):
        check_embedder(name, _names(document, "model"), lambda what: say(("memory", "embedder"), what))


def _check_default_agent(document: Table, say: Say) -> None:
    defaults = [path for path, table in _entries(document, "agent") if table.get("default") is True]
    for path in defaults[1:]:
        say((*path, "default"), "another agent is the default already")


def _check_kinds(document: Table, say: Say) -> None:
    for path, table in _entries(document, "provider"):
        kind = table.get("kind")
        if isinstance(kind, str) and kind not in PROVIDER_KINDS:
            say((*path, "kind"), f"there is no such kind; {_better_kind(kind.lower())}")


def _better_kind(kind: str) -> str:
    if kind in CHAT_SERVERS:
        return f'write kind = "openai-chat" and base_url = "{CHAT_SERVERS[kind]}"'
    return suggestion(kind, PROVIDER_KINDS).removeprefix("; ") or f"use one of {', '.join(PROVIDER_KINDS)}"


def _check_channel(table: Table, path: Path, say: Say) -> None:
    kind = table.get("kind")
    for key in _CHANNEL_NEEDS.get(kind, ()) if isinstance(kind, str) else ():
        if key not in table:
            say(path, f"a channel of kind {kind} needs the key {key}")
    if kind == "slack" and not {"app_token", "signing_secret"} & set(table):
        say(path, "a channel of kind slack needs the key app_token (socket mode) or signing_secret (web)")
    if table.get("guilds") and kind != "discord":
        say((*path, "guilds"), "only a channel of kind discord has guilds")
    if "authserv_id" in table and kind != "email":
        say((*path, "authserv_id"), "only a channel of kind email has the name of a mail server")
    allowed = table.get("allow_from")
    if kind == "discord" and isinstance(allowed, list) and ANYONE in allowed and not table.get("guilds"):
        # Whoever invites the bot to a guild of theirs would be let in.
        say(
            (*path, "allow_from"),
            f'"{ANYONE}" needs the guilds that it is about; write guilds = ["ID", ...] with their ids, or name the senders',
        )
    mapping = table.get("mapping")
    for name in mapping if isinstance(mapping, dict) else ():
        if name not in FIELDS:
            say((*path, "mapping", name), f"a message has no such field{suggestion(name, sorted(FIELDS))}")


def _check_variables(table: Table, path: Path, say: Say) -> None:
    """Allows plain variables for a server, unless the name says that the value is a secret."""
    env = table.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        found = classify_name(name)
        is_secret = found is not None and found.belief >= Belief.TOKEN
        if is_secret and isinstance(value, str) and not value.startswith(("env:", "vault:")):
            say((*path, "env", name), 'its name says it is a secret: write "env:NAME" or "vault:NAME"')


def _require_one(table: Table, path: Path, keys: tuple[str, ...], say: Say) -> None:
    _require_any(table, path, keys, say)
    _refuse_both(table, path, keys, say)


def _require_any(table: Table, path: Path, keys: tuple[str, ...], say: Say) -> None:
    if not set(keys) & set(table):
        say(path, f"needs one of the keys {', '.join(keys)}")


def _refuse_both(table: Table, path: Path, keys: tuple[str, ...], say: Say) -> None:
    given = [key for key in keys if key in table]
    for key in given[1:]:
        say((*path, key), f"cannot stand beside {given[0]}; keep one of them")


def _names(document: Table, section: str) -> list[str]:
    names = [table.get("name") for _, table in _entries(document, section)]
    return [name for name in names if isinstance(name, str)]


def _entries(document: Table, section: str) -> Iterator[tuple[Path, Table]]:
    tables = document.get(section)
    for index, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict):
            yield (section, index), table
