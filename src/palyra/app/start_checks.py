"""What keeps a daemon from starting, and what it warns of, beyond the form of its configuration.

Owns: the checks that `palyra serve` and `palyra config check` share, so that both say the same.
Does not own: reading the configuration (config), the vault, which only a start may open.
"""

import os
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from palyra.adapters.embedders import minilm
from palyra.adapters.files.homes import why_wide
from palyra.adapters.providers.scripted import load_scripts
from palyra.app import Home
from palyra.app.engine_builder import make_agents, make_routines
from palyra.app.secrets import references_of
from palyra.config import Config, SecretSource, require_safe_bind
from palyra.core.channels.model import ChannelKind
from palyra.core.errors import Invalid, PalyraError

SCRIPT = "script.toml"


def start_problems(home: Home, config: Config) -> tuple[str, ...]:
    """Returns everything that would refuse the start, all at once."""
    checks: list[Callable[[], object]] = [
        lambda: require_safe_bind(config),
        lambda: make_agents(home, config),
        lambda: make_routines(config),
        lambda: _require_tls_files(config),
    ]
    for section in config.providers:
        if section.kind == "scripted":
            path = home.root / (section.file or SCRIPT)
            checks.append(partial(load_scripts, path))
    problems = []
    for check in checks:
        try:
            check()
        except PalyraError as error:
            problems.append(f"{error.code}: {error.message}")
    return tuple(problems)


def start_warnings(home: Home, config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what a daemon starts with all the same."""
    return (
        *_unset_variables(config, environ),
        *open_tls_key(config.server.tls_key),
        *_missing_weights(config),
        *wide_workspaces(home, config),
        *unvouched_mailboxes(config),
    )


def wide_workspaces(home: Home, config: Config) -> Iterator[str]:
    """Yields a warning for each workspace that holds more than a project."""
    roots = dict.fromkeys((agent.name, root) for agent in config.agents for root in agent.workspace)
    for name, root in roots:
        why = why_wide(str(home.root / Path(root).expanduser()))
        if why is not None:
            yield f"agent {name}: the workspace {root} {why}; writing its dot-files asks. Better name one project"


def unvouched_mailboxes(config: Config) -> Iterator[str]:
    """Yields a warning for each mailbox of which no server is known that vouches for senders."""
    for section in config.channels:
        if section.kind is ChannelKind.EMAIL and section.authserv_id is None:
            yield (
                f"channel {section.name}: without authserv_id a mail is verified only if it answers one of ours, so "
                f"nobody can begin or pair by mail; palyra channels test {section.name} says what to write"
            )


def _unset_variables(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    for reference in references_of(config):
        if reference.source is SecretSource.ENVIRONMENT and not environ.get(reference.name):
            yield f"{reference} is not set in this environment, so what needs it fails until it is"


def _missing_weights(config: Config) -> Iterator[str]:
    if config.memory.embedder == "minilm" and not minilm.is_installed():
        yield f"memory.embedder: {minilm.NOT_INSTALLED}; until then, memory is searched by words"


def open_tls_key(tls_key: str | None) -> Iterator[str]:
    """Others may read the private key. The file may belong to another program, so it is no error."""
    try:
        mode = stat.S_IMODE(os.stat(tls_key).st_mode) if tls_key is not None else 0
    except OSError:
        return
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield f"everybody on this machine can read the TLS key {tls_key} ({mode:04o}); run: chmod 600 {tls_key}"


def _require_tls_files(config: Config) -> None:
    server = config.server
    for path in filter(None, (server.tls_cert, server.tls_key, server.grpc_client_ca)):
        if not os.access(path, os.R_OK) or not os.path.isfile(path):
            raise Invalid("tls_unreadable", f"the file {path} of [server] is not there or cannot be read")
    if server.tls_cert is not None and server.tls_key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(server.tls_cert, server.tls_key, password="")
        except (ssl.SSLError, OSError) as cause:
            what = (
                f"{server.tls_cert} and {server.tls_key} of [server] are no certificate with its key in PEM, or locked"
            )
            raise Invalid("tls_unfit", what) from cause
