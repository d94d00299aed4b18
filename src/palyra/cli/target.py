"""Chooses the daemon's address and the token that a command uses.

Does not own: calls (client).
Invariant: a token leaves this machine over TLS only, unless the configuration accepts the risk (`server.insecure`).
"""

import os
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from palyra.app import Home
from palyra.core.errors import Invalid, Unauthorized

if TYPE_CHECKING:
    from palyra.config import Config

TOKEN_VARIABLE = "PALYRA_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file
TOKEN_BYTES_MAX = 4096
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - who listens everywhere is reached here

UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The daemon's address, instead of the configured one.")
]


class DaemonTarget(msgspec.Struct, frozen=True):
    """`ca_file` is a certificate to trust in addition to the system's."""

    url: str
    token: str | None
    ca_file: str | None = None


def target_of(home: Home, url: str | None) -> DaemonTarget:
    from palyra.config import Config, load

    config = Config() if url is not None else load(home.root, os.environ)
    chosen = url_of(config) if url is None else _checked(url)
    _require_private(chosen, config)
    ca_file = config.server.tls_cert if url is None and config.server.has_tls else None
    return DaemonTarget(chosen, read_token(home), ca_file)


def url_of(config: "Config") -> str:
    from palyra.config import ListenAddress

    listening = config.server.http
    address = ListenAddress(_ANY.get(listening.host, listening.host), listening.port)
    return f"{'https' if config.server.has_tls else 'http'}://{address}"


def read_token(home: Home) -> str:
    path = home.root / TOKEN_FILE
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        token = token or path.read_bytes()[:TOKEN_BYTES_MAX].decode("ascii").strip()
    except FileNotFoundError as cause:
        message = f"there is no {path}; start palyra serve once, or set {TOKEN_VARIABLE}"
        raise Unauthorized("token_missing", message) from cause
    except (OSError, UnicodeDecodeError) as cause:
        raise Unauthorized("token_unreadable", f"{path} cannot be read; set {TOKEN_VARIABLE} instead") from cause
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Unauthorized("token_invalid", f"{TOKEN_VARIABLE} or {path} holds something else than a token")
    return token


def _checked(url: str) -> str:
    from palyra.config.forms import parse_http_url

    text = url if "://" in url else f"http://{url}"
    try:
        return parse_http_url(text).rstrip("/")
    except Invalid as cause:
        raise Invalid("url_invalid", f"--url {cause.message}") from cause


def _require_private(url: str, config: "Config") -> None:
    from palyra.config import ListenAddress

    parts = urlsplit(url)
    is_here = ListenAddress(parts.hostname or "", 0).is_loopback
    is_accepted = config.server.insecure or os.environ.get("PALYRA_SERVER__INSECURE", "").lower() in (
        "1",
        "true",
        "yes",
    )
    if parts.scheme == "http" and not is_here and not is_accepted:
        raise Invalid(
            "url_insecure",
            "the token would travel unencrypted to another machine; use https, or set PALYRA_SERVER__INSECURE=true",
        )
