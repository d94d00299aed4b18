"""`palyra journal`: offline maintenance of the journal: its size, erasing, retention.

Does not own: erasing through a running daemon (commands.sessions).
"""

import re
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import typer

from palyra.app import Home, Offline, now_ms, open_archive, open_offline
from palyra.cli.lookup import choose_stored_session
from palyra.cli.options import CommandGroup, YesOption, home_of, is_json
from palyra.cli.output import print_json, print_line, print_table
from palyra.core.errors import Invalid
from palyra.core.ids import ULID_LENGTH, Principal, SessionId, parse_session_id
from palyra.core.plurals import counted
from palyra.ports.journal import Erasure

app = CommandGroup()

OPERATOR = Principal("user:owner")  # Anyone who can write the home acts as its owner.
FAMILIES_MAX = 500  # Families of sessions per step of retention; each step is one transaction.
FAMILIES_SHOWN_MAX = 10_000  # A person reads the output of a dry run.
SEQS_MAX = 1_000_000  # A longer range would be the whole tape.
_DURATION = re.compile(r"([1-9][0-9]{0,5})([hdwy])")
_UNIT_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000, "y": 365 * 86_400_000}
_SEQS = re.compile(r"([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,14}))?")

Answer = TypeVar("Answer")
ReasonOption = Annotated[str, typer.Option(help="The reason. It is recorded and stays.")]


@app.callback()
def group() -> None:
    """Maintenance of the journal while no daemon runs.

    Examples:

      palyra journal info
    """


@app.command("info", url=False)
def show(context: typer.Context) -> None:
    """Print the path of the journal, its schema, and how much it holds. A daemon may be running.

    Examples:

      palyra journal info --json
    """
    home = home_of(context)
    with open_archive(home) as archive:
        totals = archive.totals()
    size_bytes = home.journal.stat().st_size
    if is_json(context):
        print_json({"path": str(home.journal), "size_bytes": size_bytes, "totals": totals})
        return
    print_table(
        [
            ("journal", home.journal),
            ("size", f"{size_bytes} bytes"),
            ("schema", totals.schema_version),
            ("tapes", totals.tapes_count),
            ("events", totals.events_count),
            ("last position", totals.last_position),
        ]
    )


@app.command(url=False)
def erase(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="A session, as `palyra sessions` takes it.")],
    reason: ReasonOption,
    seq: Annotated[
        list[str] | None, typer.Option(help="Only these events: a seq or a range FIRST-LAST; may be repeated.")
    ] = None,
    with_branches: Annotated[bool, typer.Option("--with-branches", help="Erase its branches too.")] = False,
    yes: YesOption = False,
) -> None:
    """Erase a session's texts, or some of them, for good. Stop the daemon first.

    The hash chain and the seqs stay, and a system tape records the erasure, so the journal still verifies.

    Examples:

      palyra journal erase 01JXQ0Z7N8E4T5Y6W7V8S9R0QP --reason "asked to be forgotten"

      palyra journal erase 01JXQ0Z7N8E4T5Y6W7V8S9R0QP --seq 7 --seq 12-15 --reason "held a secret"
    """
    home = home_of(context)
    session_id = _find_session(home, session)
    seqs = None if seq is None else _parse_seqs(seq)
    if with_branches and seqs is not None:
        raise typer.BadParameter("--with-branches erases whole sessions; leave out --seq")
    what = "all of it" if seqs is None else f"{len(seqs)} of its events"
    if not yes:
        typer.confirm(f"Erase {what} in session {session_id}, for good?", abort=True, err=True)
    erased_count = _run(_erase_session(home, session_id, seqs, reason, with_branches))
    _show_erased(erased_count, is_json(context))


@app.command(url=False)
def retain(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="Erase sessions without activity for this long: 12h, 90d, 8w, 2y.")],
    reason: ReasonOption = "retention",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be erased.")] = False,
    yes: YesOption = False,
) -> None:
    """Erase sessions that nobody used for a long time. Stop the daemon first.

    A session is erased only together with its branches, and never while one of its runs is unfinished.

    Examples:

      palyra journal retain --older-than 90d --dry-run

      palyra journal retain --older-than 2y --yes
    """
    before_ms = now_ms() - _parse_duration_ms(older_than)
    home, as_json = home_of(context), is_json(context)
    if dry_run:
        _show_due(_run(_due(home, before_ms)), as_json)
        return
    if not yes:
        typer.confirm(f"Erase all sessions without activity for {older_than}, for good?", abort=True, err=True)
    _show_erased(_run(_retain(home, before_ms, reason)), as_json)


@app.command(url=False)
def vacuum(context: typer.Context) -> None:
    """Return the space of erased texts to the disk. Stop the daemon first.

    It needs as much free space as the journal takes.

    Examples:

      palyra journal vacuum
    """
    home = home_of(context)
    before_bytes = home.journal.stat().st_size if home.journal.is_file() else 0
    _run(_vacuum(home))
    after_bytes = home.journal.stat().st_size
    if is_json(context):
        print_json({"ok": True, "before_bytes": before_bytes, "after_bytes": after_bytes})
    else:
        print_line(f"{home.journal}: {before_bytes} bytes before, {after_bytes} now")


def _find_session(home: Home, name: str) -> SessionId:
    """Finds a session by its id, or as the daemon finds it: by key, label, `last` or the id's beginning."""
    if len(name) == ULID_LENGTH:
        return parse_session_id(name)
    with open_archive(home) as archive:
        return SessionId(choose_stored_session((row for each in archive.streams() for row in archive.rows(each)), name))


def _run(act: Coroutine[Any, Any, Answer]) -> Answer:
    import asyncio

    return asyncio.run(act)


async def _erase_session(
    home: Home, session_id: SessionId, seqs: tuple[int, ...] | None, reason: str, with_branches: bool
) -> int:
    async with open_offline(home) as offline:
        sessions = await _family(offline, session_id) if with_branches else [session_id]
        return await _erase(offline, sessions, seqs, reason)


async def _retain(home: Home, before_ms: int, reason: str) -> int:
    erased_count = 0
    async with open_offline(home) as offline:
        while families := await offline.journal.sessions.inactive_families(before_ms, FAMILIES_MAX):
            sessions = [session for family in families for session in family]
            step_count = await _erase(offline, sessions, None, reason)
            if step_count == 0:
                break  # A session that is due and has nothing left to erase would stay due for ever.
            erased_count += step_count
    return erased_count


async def _due(home: Home, before_ms: int) -> list[SessionId]:
    async with open_offline(home) as offline:
        families = await offline.journal.sessions.inactive_families(before_ms, FAMILIES_SHOWN_MAX)
    return [session for family in families for session in family]


async def _vacuum(home: Home) -> None:
    async with open_offline(home) as offline:
        await offline.journal.vacuum()


async def _erase(offline: Offline, sessions: Sequence[SessionId], seqs: tuple[int, ...] | None, reason: str) -> int:
    """Returns how many events were erased. An artifact's file is deleted once no other tape refers to it."""
    at_ms = now_ms()
    erasures = [Erasure(stream=session, seqs=seqs, reason=reason, actor=OPERATOR, at_ms=at_ms) for session in sessions]
    state = offline.journal.state
    artifacts = [artifact for session in sessions for artifact in await state.artifacts_of(session)]
    records = await offline.journal.erase(erasures)
    for artifact in await state.unlinked(artifacts):
        await offline.artifacts.remove(artifact)
    return sum(_ranges_count(record.data) for record in records)


def _ranges_count(data: object) -> int:
    ranges = getattr(data, "ranges", ())
    return sum(span.last - span.first + 1 for span in ranges)


async def _family(offline: Offline, session_id: SessionId) -> list[SessionId]:
    """Returns the session and all its branches, each once."""
    found = [session_id]
    for each in found:  # The list grows during the loop, until no branch is left.
        found += [row.id for row in await offline.journal.sessions.dependents(each) if row.id not in found]
    return found


def _parse_seqs(texts: Sequence[str]) -> tuple[int, ...]:
    seqs: set[int] = set()
    for text in texts:
        match = _SEQS.fullmatch(text)
        if match is None:
            raise typer.BadParameter("--seq takes a seq or a range FIRST-LAST, such as 7 or 12-15")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first + len(seqs) >= SEQS_MAX:
            raise typer.BadParameter("--seq: a range goes upwards, and a million events is the most")
        seqs.update(range(first, last + 1))
    return tuple(sorted(seqs))


def _parse_duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Invalid("duration_invalid", "--older-than takes a number and h, d, w or y, such as 90d")
    return int(match[1]) * _UNIT_MS[match[2]]


def _show_erased(erased_count: int, as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "erased_count": erased_count})
    else:
        print_line(f"{counted(erased_count, 'event')} erased")


def _show_due(sessions: Sequence[SessionId], as_json: bool) -> None:
    if as_json:
        print_json({"ok": True, "session_ids": sessions})
        return
    for session in sessions:
        print_line(session)
    print_line(f"{counted(len(sessions), 'session')} would be erased")
