"""Acts of administrators are on the system tape, whatever else is put there at the same moment."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palyra.core.errors import Conflict
from palyra.core.events import Draft, Event
from palyra.core.events.system import AdminActed
from palyra.core.healing.model import Finding, HealingDomain, Severity
from palyra.core.ids import system_stream
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from palyra.ports.journal import Append, Journal
from tests.support.engines import OWNER, Workshop
from tests.support.routines import wish

pytestmark = pytest.mark.anyio


async def acts(engine: Engine) -> list[str]:
    events = await engine._setup.journal.read(system_stream(engine._parts.node), 0, 100)
    return [event.data.action for event in events if isinstance(event.data, AdminActed)]


class Elbowed:
    """A journal in which somebody else always puts an event on the system tape just before we do, for a while."""

    def __init__(self, journal: Journal, times: int) -> None:
        self._journal = journal
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, appends: Sequence[Append], *rest: Any) -> tuple[Event, ...]:
        if self._left and appends and isinstance(appends[0].drafts[0].data, AdminActed):
            self._left -= 1
            other = Draft(data=AdminActed(action="elbow"), actor=OWNER, trust=Trust.SYSTEM, at_ms=1)
            await self._journal.commit([Append(appends[0].stream, appends[0].expected_seq, (other,))])
        return await self._journal.commit(appends, *rest)


async def test_an_act_is_recorded_in_spite_of_others_on_the_tape(tmp_path: Path) -> None:
    made = Workshop(tmp_path, [])
    made.wrap_journal = lambda journal: Elbowed(journal, 3)
    async with made.open() as engine:
        await engine.acts.record(OWNER, AdminActed(action="policy.reloaded"))
        assert await acts(engine) == ["elbow"] * 3 + ["policy.reloaded"]


async def test_an_act_that_cannot_be_recorded_is_an_error(tmp_path: Path) -> None:
    made = Workshop(tmp_path, [])
    made.wrap_journal = lambda journal: Elbowed(journal, 10_000)
    async with made.open() as engine:
        with pytest.raises(Conflict, match="seq_stale"):
            await engine.acts.record(OWNER, AdminActed(action="policy.reloaded"))


async def test_many_acts_incidents_and_routines_at_once_are_all_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.engine.system_tape.ATTEMPTS_MAX", 1)  # Nobody else appends, so none may be needed.
    finding = Finding(
        domain=HealingDomain.DISK, subject="disk", severity=Severity.WARNING, evidence="full", remediation="clear it"
    )
    async with Workshop(tmp_path, []).open() as engine:
        await asyncio.gather(
            *(engine.acts.record(OWNER, AdminActed(action=f"act.{number}")) for number in range(40)),
            *(engine.watchdog.record.opened(OWNER, finding, None) for _ in range(40)),
            *(engine.routines.create(OWNER, wish(f"routine {number}")) for number in range(40)),
        )
        assert len(await acts(engine)) == 40
        assert len(await engine.routines.list(OWNER, "", 100)) == 40
