"""Parsers for values with a form: addresses, references to secrets, names, URLs and times.

Does not own: which setting has which form (records).
Invariant: a message about a wrong value never repeats the value, which may be a secret in the wrong place.
"""

import re
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec

from palyra.core.errors import Invalid

NAME_LENGTH_MAX = 64  # Names become parts of tool names, keys and principals.
PORT_MAX = 65_535
JOURNAL_URL = "sqlite:journal.db"

_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*")
_KIND = re.compile(r"[a-z][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VAULT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_GUILD = re.compile(r"[0-9]{1,20}")
_SERVER_NAME = re.compile(r"[^\s\x00-\x1f\x7f@;=,<>()\[\]/?:\"]{1,253}")
_CRON_FIELD = re.compile(r"[0-9A-Za-z*/,#-]+")
_CRON_RANGES = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_CRON_NUMBER = re.compile(r"(?<![/#0-9A-Za-z])[0-9]+(?![0-9A-Za-z])")  # Steps and the n of #n are no such numbers.


class Parsed(msgspec.Struct, frozen=True):
    """Marks a setting whose text has a form; the parser raises Invalid if the text does not fit."""

    parse: Callable[[str], object]


class ParsedEach(msgspec.Struct, frozen=True):
    """Marks a list of such texts."""

    parse: Callable[[str], object]


class ListenAddress(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class SecretSource(Enum):
    ENVIRONMENT = "env"
    VAULT = "vault"


class SecretRef(msgspec.Struct, frozen=True):
    """Where a secret is. Its value is never part of the configuration."""

    source: SecretSource
    name: str

    def __str__(self) -> str:
        return f"{self.source.value}:{self.name}"


def parse_address(text: str) -> ListenAddress:
    """Port 0 means any free port."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > PORT_MAX:
        raise Invalid("address_invalid", 'must be "host:port" with a port from 0 to 65535')
    return ListenAddress(_parse_host(host), int(port))


def parse_optional_address(text: str) -> ListenAddress | None:
    """The word `off` means: listen nowhere."""
    return None if text == "off" else parse_address(text)


def parse_target(text: str) -> ListenAddress:
    address = parse_address(text)
    if address.port == 0:
        raise Invalid("address_invalid", 'must be "host:port" with a port from 1 to 65535')
    return address


def parse_local_target(text: str) -> ListenAddress:
    """Parses an address of this machine: servers that are searched for unasked are searched for nowhere else."""
    address = parse_target(text)
    if not address.is_loopback:
        raise Invalid("address_not_local", "must be an address of this machine, such as 127.0.0.1:11434")
    return address


def parse_host(text: str) -> str:
    """The name of a machine, without a port."""
    if _HOST.fullmatch(text) is None:
        raise Invalid("host_invalid", "must be the name of a host, without a port")
    return text.lower()


def parse_secret(text: str) -> SecretRef:
    source, _, name = text.partition(":")
    if source == SecretSource.ENVIRONMENT.value and _VARIABLE.fullmatch(name):
        return SecretRef(SecretSource.ENVIRONMENT, name)
    if source == SecretSource.VAULT.value and _VAULT_NAME.fullmatch(name):
        return SecretRef(SecretSource.VAULT, name)
    raise Invalid(
        "secret_literal",
        'must be "env:NAME" or "vault:NAME": put the secret in an environment variable or in the vault, not in this file; '
        "if it was ever saved here, replace it where it was issued",
    )


def parse_name(text: str) -> str:
    return _fitting(_NAME, text, "letters, digits, _ and -")


def parse_model_name(text: str) -> str:
    return _fitting(_MODEL_NAME, text, "letters, digits and . _ / : -")


def parse_kind(text: str) -> str:
    return _fitting(_KIND, text, "small letters, digits and -")


def parse_text(text: str) -> str:
    if not text.strip():
        raise Invalid("text_empty", "must not be empty")
    return text


def parse_guild(text: str) -> str:
    if _GUILD.fullmatch(text) is None:
        raise Invalid("guild_invalid", 'must be ids of guilds, which are digits, such as "81384788765712384"')
    return text


def parse_server_name(text: str) -> str:
    """Parses the name that a mail server gives itself in Authentication-Results. Most are the name of a host."""
    if _SERVER_NAME.fullmatch(text) is None:
        raise Invalid(
            "server_name_invalid", "must be the name alone that the server gives itself, such as mx.example.com"
        )
    return text


def parse_document_path(text: str) -> str:
    """Parses the path of a file below a workspace's root, written as file tools show it."""
    parts = text.split("/")
    if not text.strip() or "\x00" in text or any(part in ("", ".", "..") for part in parts):
        raise Invalid("path_invalid", "must be a path below the workspace, such as AGENTS.md or docs/rules.md")
    return text


def parse_http_url(text: str) -> str:
    return _parse_url(text, ("http", "https"))


def parse_imap_url(text: str) -> str:
    return _parse_url(text, ("imap", "imaps"))


def parse_smtp_url(text: str) -> str:
    return _parse_url(text, ("smtp", "smtps"))


def parse_journal_url(text: str) -> str:
    """Offline commands look for the journal in the home, so it lies nowhere else."""
    if text.startswith(("postgresql:", "postgres:")):
        raise Invalid("journal_url_invalid", f'PostgreSQL is not there yet; write "{JOURNAL_URL}" or leave this out')
    if text != JOURNAL_URL:
        raise Invalid(
            "journal_url_invalid",
            f'must be "{JOURNAL_URL}": the journal is in the home, which PALYRA_HOME or --home moves',
        )
    return text


def parse_anchor(text: str) -> str:
    kind, _, rest = text.partition(":")
    if kind in ("file", "command") and rest.strip():
        if kind == "file" and not rest.startswith(("/", "~")):
            raise Invalid("anchor_invalid", "must be file: and an absolute path")
        return text
    if kind in ("http", "https"):
        return parse_http_url(text)
    raise Invalid("anchor_invalid", "must be file:PATH, command:PROGRAM, or an address that begins with https://")


def parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as cause:
        raise Invalid("pattern_invalid", "must be a regular expression of Python's re module") from cause
    return text


def parse_timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError) as cause:  # Which error it is depends on whether the text could be a path.
        raise Invalid("timezone_unknown", 'must be the name of a time zone, such as "Europe/Prague"') from cause
    return text


def parse_cron(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON_RANGES) or not all(_CRON_FIELD.fullmatch(field) for field in fields):
        raise Invalid("cron_invalid", 'must be a cron expression of five fields, such as "30 7 * * 1-5"')
    for field, (name, least, most) in zip(fields, _CRON_RANGES, strict=True):
        if any(not least <= int(number) <= most for number in _CRON_NUMBER.findall(field)):
            raise Invalid("cron_invalid", f"its {name} must be from {least} to {most}")
    return text


def parse_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError as cause:
        raise Invalid("time_invalid", "must be a date and time, such as 2027-01-31T07:30:00+01:00") from cause
    return text


def _parse_host(host: str) -> str:
    try:
        if host.startswith("[") and host.endswith("]"):
            return str(IPv6Address(host[1:-1]))
    except ValueError as cause:
        raise Invalid("address_invalid", "must have an IPv6 address between its brackets") from cause
    if _HOST.fullmatch(host) is None:
        raise Invalid("address_invalid", 'must be "host:port"; an IPv6 address stands in brackets')
    return host


def _parse_url(text: str, schemes: tuple[str, ...]) -> str:
    message = f"must be a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)} and names a host"
    try:
        parts = urlsplit(text)
        is_sound = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as cause:
        raise Invalid("url_invalid", message) from cause
    if not is_sound or any(letter.isspace() or not letter.isprintable() for letter in text):
        raise Invalid("url_invalid", message)
    if parts.password is not None:
        raise Invalid("secret_literal", "must not hold a password; secrets are env:NAME or vault:NAME")
    return text


def _fitting(pattern: re.Pattern[str], text: str, letters: str) -> str:
    if pattern.fullmatch(text) is None or len(text) > NAME_LENGTH_MAX:
        raise Invalid(
            "name_invalid", f"must be at most {NAME_LENGTH_MAX} of {letters}, and begin with a letter or digit"
        )
    return text
