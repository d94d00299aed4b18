"""The scripted provider: answers from a list or a file, for tests and rehearsals.

Does not own: the place in a conversation (prepared_turns).
The first script whose `when` matches the person's last question plays; its turn is the number of answers since.
docs/providers.md describes the file's form.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec

from palyra.adapters.providers.prepared_turns import PreparedFailure, Turn, find_standing, play
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.model import ModelError
from palyra.ports.provider import Delta, ModelRequest

FILE_BYTES_MAX = 4 * 1024 * 1024


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns for one kind of question. `when` is a regular expression that ignores case; "" fits all."""

    turns: tuple[Turn, ...]
    when: str = ""


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scripts: tuple[Script, ...]


class ScriptedProvider:
    def __init__(self, scripts: Sequence[Script]) -> None:
        try:
            self._scripts = [(re.compile(script.when, re.IGNORECASE), script) for script in scripts]
        except re.error as cause:
            raise Invalid("script_invalid", f"`when` of a script is no regular expression: {cause}") from cause

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        return play(self._choose(request))

    def _choose(self, request: ModelRequest) -> Turn:
        standing = find_standing(request.messages)
        script = next((script for when, script in self._scripts if when.search(standing.asked)), None)
        if script is None:
            return _missing("No script fits what was asked; add one with a `when` that does, or with none.")
        if standing.answered_count >= len(script.turns):
            return _missing(f"The script has {len(script.turns)} turns and all were played; add another.")
        return script.turns[standing.answered_count]


def load_scripts(path: Path) -> tuple[Script, ...]:
    """Reads a .toml or .json file. Every fault of the file is Invalid and says where it is."""
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
    except OSError as cause:
        raise Unavailable("script_unreadable", f"the script {path} cannot be read: {cause.strerror}") from cause
    if len(body) > FILE_BYTES_MAX:
        raise Invalid("script_invalid", f"the script {path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(body, type=ScriptFile).scripts
        return msgspec.toml.decode(body, type=ScriptFile).scripts
    except (msgspec.DecodeError, UnicodeError) as cause:
        raise Invalid("script_invalid", f"the script {path} does not read: {cause}") from cause


def _missing(message: str) -> Turn:
    return Turn(failure=PreparedFailure(ModelError.BAD_REQUEST, message))
