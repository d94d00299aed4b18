"""The checks of `palyra doctor`: what each one finds, and what to do about it.

Does not own: repairs. Every check only reads.
"""

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from palyra import __version__
from palyra.app import Home, count_memory_items, known_heads, open_archive
from palyra.app.engine_builder import make_agents
from palyra.cli.target import target_of
from palyra.config import FILE_NAME, Config, ConfigInvalid, load, require_safe_bind
from palyra.core.errors import NotFound, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.learning.documents import BLOCKS, PATH
from palyra.core.managed_blocks import parse_blocks
from palyra.core.plurals import counted
from palyra.ports.tokens import ADMIN_TOKEN_ID, Role, includes

PYTHON_MIN = (3, 11)
SPACE_LOW_BYTES = 1024**3  # Room for a day of a busy journal.
SPACE_FULL_BYTES = 100 * 1024**2  # With less, a write may fail at any moment.
HEALTH_TIMEOUT_S = 3.0
MODELS_TIMEOUT_S = 10.0  # The first request loads the price list.
PID_BYTES_MAX = 32
PROBLEMS_SHOWN = 5
MODELS_SHOWN = 5
INCIDENTS_SHOWN = 20
_NO_MODEL = "set ANTHROPIC_API_KEY or OPENAI_API_KEY for the daemon, or name a [[provider]] in palyra.toml"
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class FindingMark(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class DoctorFinding(msgspec.Struct, frozen=True):
    mark: FindingMark
    check: str
    what: str
    remedy: str = ""


def examine(home: Home, url: str | None) -> list[DoctorFinding]:
    writer = _writer(home)
    return [
        _python(),
        _packages(),
        *_home(home),
        *_config(home),
        _vault(home),
        *_policies(home),
        *_tokens(home),
        _journal(home),
        *_memory(home),
        *_unknown_blocks(home),
        DoctorFinding(
            FindingMark.OK,
            "writer",
            f"process {writer} writes the journal" if writer else "no process writes the journal",
        ),
        _space(home),
        _daemon(home, url, writer is not None),
        _models(home, url),
        *_incidents(home, url),
        _sandbox(),
        _drafts(home),
        *_workspaces(home),
        *_mailboxes(home),
    ]


def _python() -> DoctorFinding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= PYTHON_MIN:
        return DoctorFinding(FindingMark.OK, "python", f"{version}, palyra {__version__}")
    return DoctorFinding(FindingMark.FAIL, "python", f"{version} is too old", "use Python 3.11 or newer")


def _packages() -> DoctorFinding:
    try:
        requirements = metadata.requires("palyra") or []
    except metadata.PackageNotFoundError:
        return DoctorFinding(
            FindingMark.WARN, "packages", "palyra itself is not installed", "run it from its environment: make setup"
        )
    names = [_REQUIREMENT.match(each) for each in requirements if "extra ==" not in each]
    missing = [name[0] for name in names if name is not None and not _is_installed(name[0])]
    if missing:
        return DoctorFinding(
            FindingMark.FAIL, "packages", f"not installed: {', '.join(missing)}", "run make setup, or install them"
        )
    return DoctorFinding(FindingMark.OK, "packages", f"all {len(names)} are installed")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _home(home: Home) -> Iterator[DoctorFinding]:
    root = home.root
    if not root.is_dir():
        yield DoctorFinding(FindingMark.WARN, "home", f"{root} does not exist", "the first palyra serve creates it")
        return
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        yield DoctorFinding(
            FindingMark.FAIL, "home", f"{root} cannot be written", "chown it to the user who runs palyra"
        )
    elif _is_open(root):
        yield DoctorFinding(FindingMark.WARN, "home", f"others may read {root}", f"chmod 700 {root}")
    else:
        yield DoctorFinding(FindingMark.OK, "home", str(root))
    secrets = (home.admin_token, home.signing_key, home.vault_key)
    for path in (path for path in secrets if path.exists() and _is_open(path)):
        yield DoctorFinding(
            FindingMark.FAIL, "keys", f"others may read {path}", f"chmod 600 {path}, then replace what it holds"
        )


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _config(home: Home) -> Iterator[DoctorFinding]:
    path = home.root / FILE_NAME
    try:
        config = load(home.root, os.environ)
        require_safe_bind(config)
    except ConfigInvalid as error:
        for problem in error.problems[:PROBLEMS_SHOWN]:
            yield DoctorFinding(FindingMark.FAIL, "config", str(problem), "palyra config check shows every problem")
    except PalyraError as error:
        yield DoctorFinding(FindingMark.FAIL, "config", error.message)
    else:
        yield DoctorFinding(
            FindingMark.OK, "config", str(path) if path.is_file() else f"no {path}: defaults and variables"
        )
        from palyra.app.start_checks import open_tls_key

        for warning in open_tls_key(config.server.tls_key):
            yield DoctorFinding(FindingMark.WARN, "config", warning)


def _vault(home: Home) -> DoctorFinding:
    """Checks the vault without asking for a passphrase.

    It sees the variables of this process, which may differ from the daemon's.
    """
    from palyra.app.secrets import SecretSources, references_of

    sources = SecretSources(home, os.environ)
    try:
        count = sources.open()
        config = _config_if_sound(home)
        missing = [str(each) for each in sources.unresolved(config)]
    except PalyraError as error:
        is_locked = error.code == "vault_passphrase_missing"
        return DoctorFinding(FindingMark.WARN if is_locked else FindingMark.FAIL, "vault", error.message)
    what = "there is none" if count is None else f"opens, secrets: {count}"
    if missing:
        mark = FindingMark.FAIL if any(each.startswith("vault:") for each in missing) else FindingMark.WARN
        remedy = "palyra secrets set NAME, or set the variable for the daemon"
        return DoctorFinding(mark, "vault", f"{what}; no value for {', '.join(missing[:PROBLEMS_SHOWN])}", remedy)
    wanted = len(references_of(config))
    told = f"references with a value: {wanted} of {wanted}" if wanted else "nothing refers to it or to a variable"
    return DoctorFinding(FindingMark.OK, "vault", f"{what}; {told}")


def _policies(home: Home) -> list[DoctorFinding]:
    """Reads the policies as a daemon would, so that a broken file shows before any incident does."""
    from palyra.app.policies import check_policies

    report = check_policies(home, ())
    if report.ok:
        return [DoctorFinding(FindingMark.OK, "policies", counted(len(report.policies), "policy", "policies"))]
    what = "; ".join(report.problems)
    return [DoctorFinding(FindingMark.FAIL, "policies", what, "mend the file; palyra policy check says more")]


def _tokens(home: Home) -> list[DoctorFinding]:
    """Lists tokens of which nobody said who speaks with them: a program that has one is taken for a person."""
    from palyra.app.credentials import list_tokens

    try:
        records = list_tokens(home)
    except PalyraError as error:
        return [DoctorFinding(FindingMark.FAIL, "tokens", error.message)]
    valid = [each for each in records if each.state == "valid" and each.id != ADMIN_TOKEN_ID]
    unsaid = [each for each in valid if each.speaks is None and includes(each.role, Role.USER)]
    if not unsaid:
        return [DoctorFinding(FindingMark.OK, "tokens", counted(len(valid), "token") + " besides the admin token")]
    named = _some([f"{each.id} ({each.label or each.principal})" for each in unsaid])
    what = f"nobody said who speaks with these, so outside MCP they count as a person's: {named}"
    remedy = "for a program, make a new one with palyra tokens new --program, and revoke the old one"
    return [DoctorFinding(FindingMark.WARN, "tokens", what, remedy)]


def _config_if_sound(home: Home) -> Config:
    """Returns the configuration, or the defaults if it is wrong; another check reports the problems."""
    try:
        return load(home.root, os.environ)
    except PalyraError:
        return Config()


def _journal(home: Home) -> DoctorFinding:
    """Counts what the journal holds, and compares its end with the newest checkpoint that its keys have signed."""
    try:
        heads = known_heads(home.public_keys)  # Before the snapshot: a daemon may sign a newer one meanwhile.
        with open_archive(home) as archive:
            totals = archive.totals()
    except NotFound:
        return DoctorFinding(
            FindingMark.WARN, "journal", f"there is no {home.journal}", "the first palyra serve creates it"
        )
    except PalyraError as error:
        remedy = "try again" if isinstance(error, Unavailable) else "palyra verify, then palyra restore"
        return DoctorFinding(FindingMark.FAIL, "journal", error.message, remedy)
    if any(head.position > totals.last_position for head in heads):
        what = "it is older than this node knows, so the daemon does not start"
        remedy = "put the newer journal back, or restore a backup; if the loss is known: palyra verify --accept-loss"
        return DoctorFinding(FindingMark.FAIL, "journal", what, remedy)
    return DoctorFinding(
        FindingMark.OK, "journal", f"{counted(totals.events_count, 'event')} on {counted(totals.tapes_count, 'tape')}"
    )


def _memory(home: Home) -> list[DoctorFinding]:
    """Compares the index of remembered items with the items. Without a journal there is nothing to compare."""
    try:
        items_count, differing_count = count_memory_items(home)
    except PalyraError:
        return []
    if differing_count:
        what = f"the index and the items differ in {differing_count} places"
        return [DoctorFinding(FindingMark.FAIL, "memory", what, "stop the daemon, then palyra projections rebuild")]
    return [DoctorFinding(FindingMark.OK, "memory", f"{counted(items_count, 'item')}, all in the index")]


def _unknown_blocks(home: Home) -> Iterator[DoctorFinding]:
    """Names blocks in workspaces that no prompt is given, because nobody knows whose words they are."""
    try:
        agents = make_agents(home, _config_if_sound(home))
    except PalyraError:
        return
    for root in sorted({root for agent in agents.values() for root in agent.workspace}):
        file = Path(root) / PATH
        try:
            text = file.read_text("utf-8") if file.is_file() and not file.is_symlink() else ""
        except (OSError, UnicodeDecodeError):
            continue
        for block in parse_blocks(text).blocks:
            if block.name in BLOCKS.values() and any(line.strip() for line in block.lines):
                what = (
                    f"{file}: nobody knows whose the {counted(len(block.lines), 'line')} of the block {block.name} are"
                )
                remedy = "they are in no prompt; move what everybody may read outside the marks, and delete the block"
                yield DoctorFinding(FindingMark.WARN, "notes", what, remedy)


def _writer(home: Home) -> int | None:
    """Returns the living process that the journal's lock names. The lock itself is not touched."""
    try:
        pid = int(home.journal.with_name(f"{home.journal.name}.lock").read_bytes()[:PID_BYTES_MAX])
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return None
    return pid


def _space(home: Home) -> DoctorFinding:
    place = next(path for path in (home.root, *home.root.parents) if path.exists())
    free_bytes = shutil.disk_usage(place).free
    free = f"{free_bytes / 1024**3:.1f} GiB free at {place}"
    if free_bytes < SPACE_FULL_BYTES:
        return DoctorFinding(FindingMark.FAIL, "disk", free, "free some disk space: the journal cannot grow")
    if free_bytes < SPACE_LOW_BYTES:
        return DoctorFinding(
            FindingMark.WARN, "disk", free, "free some disk space soon; palyra journal retain erases old sessions"
        )
    return DoctorFinding(FindingMark.OK, "disk", free)


def _daemon(home: Home, url: str | None, has_writer: bool) -> DoctorFinding:
    try:
        target = target_of(home, url)
    except PalyraError as error:
        return DoctorFinding(FindingMark.WARN, "daemon", f"not asked: {error.message}")
    try:
        status = _health_status(target.url)
    except (OSError, HTTPException) as cause:
        remedy = "see its log, then restart it" if has_writer else "start it with palyra serve"
        what = f"no answer at {target.url} ({type(cause).__name__})"
        return DoctorFinding(FindingMark.FAIL if has_writer else FindingMark.WARN, "daemon", what, remedy)
    if status == 200:
        return DoctorFinding(FindingMark.OK, "daemon", f"answers at {target.url}")
    return DoctorFinding(
        FindingMark.FAIL, "daemon", f"{target.url} answers with status {status}", "is this palyra? check --url"
    )


def _models(home: Home, url: str | None) -> DoctorFinding:
    """Checks the daemon's models. If no daemon answers, it checks those that a start from here would find."""
    import asyncio

    from palyra.cli.client import Client
    from palyra.cli.commands.models import list_models

    async def ask() -> list[JsonObject]:
        async with asyncio.timeout(MODELS_TIMEOUT_S), Client(target_of(home, url)) as client:
            return await list_models(client)

    try:
        return _finding_of(asyncio.run(ask()))
    except (PalyraError, TimeoutError):
        return _foreseen(home)


def _incidents(home: Home, url: str | None) -> list[DoctorFinding]:
    """Explains each open incident of the daemon. Without a daemon, or for others than operators, there is nothing."""
    import asyncio

    from palyra.cli.client import Client

    async def ask() -> list[JsonObject]:
        async with asyncio.timeout(HEALTH_TIMEOUT_S), Client(target_of(home, url)) as client:
            return await client.items("/incidents", INCIDENTS_SHOWN, status="open")

    try:
        found = asyncio.run(ask())
    except (PalyraError, TimeoutError):
        return []
    if not found:
        return [DoctorFinding(FindingMark.OK, "incidents", "none is open")]
    return [_incident_finding(item) for item in found]


def _incident_finding(item: JsonObject) -> DoctorFinding:
    mark = FindingMark.FAIL if item.get("severity") == "critical" else FindingMark.WARN
    remedy = str(item.get("remediation"))
    if item.get("remedy"):
        remedy += f" Or let the daemon {item.get('remedy_words')}: palyra incidents act {item.get('id')}"
    first_line = str(item.get("evidence")).partition("\n")[0]
    return DoctorFinding(mark, f"{item.get('domain')} incident", first_line, remedy)


def _finding_of(models: list[JsonObject]) -> DoctorFinding:
    if all(model.get("kind") == "demo" for model in models):
        return DoctorFinding(
            FindingMark.WARN, "models", "the daemon has only the demo guide, which is not a language model", _NO_MODEL
        )
    names = _some([str(model.get("name")) for model in models])
    return DoctorFinding(FindingMark.OK, "models", f"the daemon has {names}; palyra models check calls them")


def _foreseen(home: Home) -> DoctorFinding:
    import asyncio

    from palyra.app.default_models import choose_models

    try:
        choice = asyncio.run(choose_models(load(home.root, os.environ)))
    except PalyraError as error:
        return DoctorFinding(FindingMark.WARN, "models", f"not known: {error.message}")
    sections = choice.config.models or choice.config.providers
    is_guide = all(provider.kind == "demo" for provider in choice.config.providers)
    what = choice.words or f"palyra.toml names {_some([section.name for section in sections])}"
    return DoctorFinding(FindingMark.WARN if is_guide else FindingMark.OK, "models", f"at a start from here: {what}")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - MODELS_SHOWN} more" if len(names) > MODELS_SHOWN else ""
    return ", ".join(names[:MODELS_SHOWN]) + rest


def _health_status(url: str) -> int:
    """Asks for the health status. Certificates are not checked, because no token is sent."""
    import ssl

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        unchecked = ssl._create_unverified_context()  # noqa: S323
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=HEALTH_TIMEOUT_S, context=unchecked)
    else:
        connection = HTTPConnection(host, port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def _sandbox() -> DoctorFinding:
    from palyra.app.tools import try_sandbox

    is_held, words = try_sandbox()
    if is_held:
        return DoctorFinding(FindingMark.OK, "sandbox", words)
    what, _, remedy = words.partition("; ")
    return DoctorFinding(
        FindingMark.WARN, "sandbox", what, f"{remedy}; until then shell tools are unavailable, never unsandboxed"
    )


def _workspaces(home: Home) -> Iterator[DoctorFinding]:
    from palyra.app.start_checks import wide_workspaces

    for warning in wide_workspaces(home, _config_if_sound(home)):
        what, _, remedy = warning.partition("; ")
        yield DoctorFinding(FindingMark.WARN, "workspace", what, remedy)


def _mailboxes(home: Home) -> Iterator[DoctorFinding]:
    from palyra.app.start_checks import unvouched_mailboxes

    for warning in unvouched_mailboxes(_config_if_sound(home)):
        what, _, remedy = warning.partition("; ")
        yield DoctorFinding(FindingMark.WARN, "channels", what, remedy)


def _drafts(home: Home) -> DoctorFinding:
    """Says which of two worlds commands run in: drafts, or folders that they can only read."""
    from palyra.app.tools import try_drafts

    is_there, words = try_drafts(home)
    if is_there:
        return DoctorFinding(FindingMark.OK, "drafts", words)
    what, _, remedy = words.partition("; ")
    return DoctorFinding(FindingMark.WARN, "drafts", f"commands can only read: {what}", remedy)
