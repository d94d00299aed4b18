"""Configuration: palyra.toml and its variables as frozen records, with all errors reported at once.

Does not own: acting on any setting.
`load` reads the file of a home; `read_config` is the same without a file system. Layers above import from here only.
"""

from collections.abc import Mapping
from pathlib import Path

from palyra.config.forms import ListenAddress, SecretRef, SecretSource, parse_secret
from palyra.config.problems import ConfigInvalid, ConfigProblem
from palyra.config.read import TEXT_BYTES_MAX, read_config
from palyra.config.records import Config, ProviderHint, Section, plain_sections, repeated_sections, setting_names
from palyra.core.errors import Invalid, Unavailable

FILE_NAME = "palyra.toml"


def load(home: Path, environ: Mapping[str, str]) -> Config:
    """Returns the configuration of a home, or the defaults if it has no file. ConfigInvalid lists all that is wrong."""
    path = home / FILE_NAME
    found = read_config(_read_text(path), environ, str(path))
    if isinstance(found, Config):
        return found
    raise ConfigInvalid(found)


def require_safe_bind(config: Config) -> None:
    """Refuses to listen beyond this machine without TLS, unless `insecure`: tokens would travel in the clear."""
    server = config.server
    exposed = [str(each) for each in (server.http, server.grpc) if each is not None and not each.is_loopback]
    if exposed and not server.has_tls and not server.insecure:
        raise Invalid(
            "bind_insecure",
            f"{' and '.join(exposed)} can be reached from other machines without TLS; set server.tls_cert and "
            "server.tls_key, or bind to 127.0.0.1, or accept the risk with --insecure",
        )


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(TEXT_BYTES_MAX + 1).decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as cause:
        line = cause.object[: cause.start].count(b"\n") + 1
        problem = ConfigProblem(source=str(path), line=line, where="", what="is not text in UTF-8")
        raise ConfigInvalid((problem,)) from cause
    except OSError as cause:
        raise Unavailable("config_unreadable", f"{path} cannot be read: {cause.strerror}") from cause


__all__ = [
    "FILE_NAME",
    "Config",
    "ConfigInvalid",
    "ConfigProblem",
    "ListenAddress",
    "ProviderHint",
    "SecretRef",
    "SecretSource",
    "Section",
    "load",
    "parse_secret",
    "plain_sections",
    "read_config",
    "repeated_sections",
    "require_safe_bind",
    "setting_names",
]
