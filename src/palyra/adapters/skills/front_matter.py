"""Reads SKILL.md: the YAML between its `---` lines, checked, and the text below.

Does not own: files (folder).
Only plain text, lists and maps are built, whatever the YAML says: no types, no aliases. Every problem is named. A skill
with one problem is not used.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.adapters.skills.tool_names import PATTERNS_MAX, split_names, understand
from palyra.core.spelling import hides_something, spell_out

if TYPE_CHECKING:
    import yaml

SKILL_BYTES_MAX = 64 * 1024  # This is about 16,000 tokens. Longer text belongs into files beside it.
FRONT_BYTES_MAX = 16 * 1024
NAME_LENGTH_MAX = 64
DESCRIPTION_LENGTH_MAX = 1024
COMPATIBILITY_LENGTH_MAX = 500
PROBLEMS_SHOWN_MAX = 8
KNOWN_KEYS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)


class SkillManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a SKILL.md says. `problems` is empty for one that can be used."""

    description: str = ""
    allowed_tools: tuple[str, ...] | None = None
    unknown_tools: tuple[str, ...] = ()
    body: str = ""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Findings:
    """Problems and notes as they are found."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []


def is_skill_name(text: str) -> bool:
    return len(text) <= NAME_LENGTH_MAX and _NAME.fullmatch(text) is not None


def read_manifest(raw: bytes, folder: str) -> SkillManifest:
    """Reads the file of this folder. It never raises: `problems` says what is wrong."""
    if len(raw) > SKILL_BYTES_MAX:
        return _broken(f"SKILL.md is larger than {SKILL_BYTES_MAX} bytes; move parts of it into files beside it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        return _broken(f"SKILL.md is not UTF-8 (first at byte {cause.start})")
    lines = text.replace("\r\n", "\n").split("\n")
    end = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        return _broken("SKILL.md does not begin with front matter between two lines of ---")
    front = "\n".join(lines[1:end])
    if len(front.encode()) > FRONT_BYTES_MAX:
        return _broken(f"the front matter is larger than {FRONT_BYTES_MAX} bytes")
    fields = _load(front)
    if isinstance(fields, str):
        return _broken(fields)
    return _checked(fields, "\n".join(lines[end + 1 :]).strip("\n"), folder)


def _checked(fields: dict[str, object], body: str, folder: str) -> SkillManifest:
    said = _Findings()
    _check_name(fields, folder, said)
    description = _text(fields, "description", DESCRIPTION_LENGTH_MAX, said)
    if "description" not in fields:
        said.problems.append("description is missing; say what the skill does and when to use it")
    _text(fields, "license", DESCRIPTION_LENGTH_MAX, said)
    _text(fields, "compatibility", COMPATIBILITY_LENGTH_MAX, said)
    if not isinstance(fields.get("metadata") or {}, dict):
        said.problems.append("metadata is not a map of names and texts")
    allowed, unknown = _tools(fields, said)
    ignored = sorted(set(fields) - KNOWN_KEYS)
    if ignored:
        said.notes.append(
            f"not known here and left out: {', '.join(_brief(key) for key in ignored[:PROBLEMS_SHOWN_MAX])}"
        )
    if not body.strip():
        said.problems.append("there are no instructions below the front matter")
    if hides_something(body):
        said.notes.append("its text holds characters that cannot be seen; look at its bytes before you accept it")
    return SkillManifest(
        description=description,
        allowed_tools=allowed,
        unknown_tools=unknown,
        body=body,
        notes=tuple(said.notes),
        problems=tuple(said.problems[:PROBLEMS_SHOWN_MAX]),
    )


def _check_name(fields: dict[str, object], folder: str, said: _Findings) -> None:
    name = fields.get("name")
    if name is None:
        said.problems.append("name is missing; it is the folder's name")
    elif not isinstance(name, str):
        said.problems.append("name is not text")
    elif not is_skill_name(name):
        said.problems.append(
            f"name is not 1 to {NAME_LENGTH_MAX} lowercase letters, digits and single hyphens between them"
        )
    elif name != folder:
        said.problems.append(f"name is {name} but the folder is {_brief(folder)}; they must be the same")


def _text(fields: dict[str, object], key: str, length_max: int, said: _Findings) -> str:
    """Returns the value, or nothing with a problem."""
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        said.problems.append(f"{key} is not text")
        return ""
    line = " ".join(value.split())
    if not 1 <= len(line) <= length_max:
        said.problems.append(f"{key} has {len(line)} characters; it needs 1 to {length_max}")
        return ""
    if hides_something(line):
        said.problems.append(f"{key} holds characters that cannot be seen; take them out")
        return ""
    return line


def _tools(fields: dict[str, object], said: _Findings) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    value = fields.get("allowed-tools")
    if value is None:
        return None, ()
    names = split_names(value) if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        said.problems.append("allowed-tools is neither a line of names nor a list of them")
        return (), ()
    if len(names) > PATTERNS_MAX:
        said.problems.append(f"allowed-tools has {len(names)} names, at most {PATTERNS_MAX}")
        return (), ()
    meant = understand([name.strip() for name in names])
    if meant.loosened:
        said.notes.append(
            f"{', '.join(map(_brief, meant.loosened))}: the whole tool is allowed; policies judge each call"
        )
    if not meant.patterns:
        said.notes.append("allowed-tools allows no tool at all")
    return meant.patterns, tuple(map(_brief, meant.unknown))


def _load(front: str) -> dict[str, object] | str:
    """Returns the fields, or what is wrong with them."""
    import yaml

    try:
        fields = _loader()(front).get_single_data()
    except yaml.MarkedYAMLError as cause:
        line = f" in line {cause.problem_mark.line + 2}" if cause.problem_mark is not None else ""
        return f"the front matter is no plain YAML{line}: {_brief(cause.problem or 'it cannot be read')}"
    except yaml.YAMLError:
        return "the front matter is no plain YAML: it holds characters that YAML does not allow"
    except (RecursionError, ValueError):
        return "the front matter is nested too deep or holds a value that cannot be read"
    if not isinstance(fields, dict):
        return "the front matter is not a map of names and values"
    return fields


@cache
def _loader() -> "type[yaml.BaseLoader]":
    import yaml

    class Plain(yaml.BaseLoader):
        """Builds text, lists and maps alone. An alias could make ten lines mean a billion words."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.composer.ComposerError(None, None, "aliases are not taken", self.get_mark())
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a name is not text", key.start_mark)
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, "a name is there twice", key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return Plain


def _brief(text: str) -> str:
    """Returns a stranger's word, short and visible."""
    clean = spell_out(text[:NAME_LENGTH_MAX])
    return clean if len(text) <= NAME_LENGTH_MAX else f"{clean}…"


def _broken(problem: str) -> SkillManifest:
    return SkillManifest(problems=(problem,))
