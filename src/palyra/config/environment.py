"""Environment variables: PALYRA_SECTION__KEY overrides the file, and other programs' variables give hints.

Does not own: reading secrets (app.secrets).
An empty variable counts as not set. Only single tables can be overridden: an element of a list of tables has no name.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields

from palyra.config.forms import SecretRef, SecretSource, parse_http_url
from palyra.config.lines import Path
from palyra.config.problems import ConfigProblems, suggestion
from palyra.config.records import ProviderHint, Section, plain_sections, repeated_sections
from palyra.config.tables import UNREADABLE, read_value, scalar_kind
from palyra.core.errors import Invalid

PREFIX = "PALYRA_"
SEPARATOR = "__"
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_HINTS = (("ANTHROPIC", "anthropic-messages"), ("OPENAI", "openai-chat"))

Overrides = dict[str, dict[str, Any]]


def read_overrides(environ: Mapping[str, str], report: ConfigProblems) -> Overrides:
    """Returns readable values by section and key."""
    overrides: Overrides = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or SEPARATOR not in name or not text.strip():
            continue
        section_name, _, key = name.removeprefix(PREFIX).lower().partition(SEPARATOR)
        field = _find_field(name, section_name, key, report)
        value = UNREADABLE if field is None else _read(name, field, text, report)
        if value is not UNREADABLE:
            overrides.setdefault(section_name, {})[key] = value
    return overrides


def with_overrides(section: Section, values: Mapping[str, Any]) -> Any:
    return msgspec.structs.replace(section, **values)


def find_hint(environ: Mapping[str, str], report: ConfigProblems) -> ProviderHint | None:
    """Returns the first vendor whose key or address is set."""
    for vendor, kind in _HINTS:
        key_name, url_name = f"{vendor}_API_KEY", f"{vendor}_BASE_URL"
        url = environ.get(url_name, "").strip() or None
        has_key = bool(environ.get(key_name, "").strip())
        if url is not None and not _is_url(url_name, url, report):
            return None
        if has_key or url is not None:
            api_key = SecretRef(SecretSource.ENVIRONMENT, key_name) if has_key else None
            model = environ.get(f"{vendor}_MODEL", "").strip() or None
            return ProviderHint(kind=kind, api_key=api_key, base_url=url, model=model)
    return None


def _is_url(name: str, url: str, report: ConfigProblems) -> bool:
    try:
        parse_http_url(url)
    except Invalid as cause:
        report.add_variable(name, cause.message)
        return False
    return True


def _find_field(name: str, section_name: str, key: str, report: ConfigProblems) -> FieldInfo | None:
    sections = plain_sections()
    if section_name in repeated_sections():
        report.add_variable(name, f"[[{section_name}]] is a list of tables, which only the file can hold")
        return None
    if section_name not in sections:
        report.add_variable(name, f"there is no section {section_name}{suggestion(section_name, sections)}")
        return None
    known = {field.name: field for field in fields(sections[section_name])}
    if key not in known:
        near = suggestion(key, known)
        report.add_variable(name, f"[{section_name}] has no key {key}{near}")
    return known.get(key)


def _read(name: str, field: FieldInfo, text: str, report: ConfigProblems) -> Any:
    def say(path: Path, what: str) -> None:
        report.add_variable(name, what)

    raw = _as_raw(field, text.strip())
    return read_value(field, raw, (), say)


def _as_raw(field: FieldInfo, text: str) -> object:
    """Returns what the file would have held. Text that fits no type stays text, and its reader reports it."""
    kind = scalar_kind(field)
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    if kind is int:
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind is float:
        return _as_float(text)
    return _as_list(text) if kind is tuple else text


def _as_float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _as_list(text: str) -> object:
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
