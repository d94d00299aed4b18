"""The watchdog and everything but runs and jobs: services, policies, disk, log, artifacts, loop, and looks that hang."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.adapters.machine import LocalMachine
from palyra.app import Home, rebuild_projections
from palyra.core.errors import Conflict, NotFound, Unavailable
from palyra.core.healing.model import (
    Finding,
    HealingDomain,
    HealingMode,
    HealingModes,
    IncidentStatus,
    Resolution,
    Severity,
)
from palyra.core.healing.rules import DISK_FULL_BYTES, DISK_LOW_BYTES, LOG_BYTES_MAX, Moment
from palyra.core.ids import IncidentId
from palyra.engine.healing import watchdog
from palyra.engine.healing.loop_watch import LoopBlock
from palyra.ports.services import ServiceState
from palyra.ports.upkeep import JournalSize
from tests.support.engines import OWNER, Workshop
from tests.support.healing import FakeService, watched, watched_workshop
from tests.support.sqlite import change_from_outside
from tests.support.verification import verify_summary
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

AUTO, OBSERVE, DISABLED = HealingMode.AUTO, HealingMode.OBSERVE_ONLY, HealingMode.DISABLED


def with_services(root: Path, mode: HealingMode, *services: FakeService) -> Workshop:
    workshop = watched_workshop(root, [], mode)
    workshop.healing = replace(workshop.healing, services=services)
    return workshop


async def test_a_failed_service_is_restarted_in_auto_and_one_that_restarts_itself_never(tmp_path: Path) -> None:
    browser = FakeService("browser", "browser", state=ServiceState.FAILED)
    server = FakeService("mcp files", "mcp", restarts_itself=True, state=ServiceState.FAILED)
    idle = FakeService("plugins", "sandbox", state=ServiceState.IDLE)
    async with watched(with_services(tmp_path, AUTO, browser, server, idle)) as scene:
        await scene.pass_s(30)
        assert (browser.restarts_count, server.restarts_count) == (1, 0)
        await scene.pass_s(600)
        assert await scene.subjects() == [("mcp", "mcp files")]
        assert browser.restarts_count == 1


async def test_a_service_that_stays_broken_is_restarted_three_times_and_no_more(tmp_path: Path) -> None:
    broken = FakeService("browser", "browser", state=ServiceState.FAILED, is_broken=True)
    async with watched(with_services(tmp_path, AUTO, broken)) as scene:
        await scene.pass_s(7_200)
        assert broken.restarts_count == 3
        assert await scene.story() == ["opened browser", *["restart_service begun", "restart_service persists"] * 3]


async def test_a_service_that_fails_again_and_again_is_one_incident(tmp_path: Path) -> None:
    service = FakeService("browser", "browser")
    async with watched(with_services(tmp_path, AUTO, service)) as scene:
        for _ in range(20):
            service.state = ServiceState.FAILED
            await scene.pass_s(90)
        assert service.restarts_count == 3
        assert len(await scene.incidents(None)) == 1


async def test_a_remedy_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    service = FakeService("browser", "browser", state=ServiceState.FAILED)

    async def fail() -> None:
        raise Unavailable("browser_missing", "there is no browser")

    service.restart = fail  # type: ignore[method-assign]
    async with watched(with_services(tmp_path, AUTO, service)) as scene:
        await scene.pass_s(60)
        (record,) = await scene.engine.incidents.list(None, "", 10)
        assert record.last == "restart_service failed: browser_missing: there is no browser"


async def test_a_remedy_that_hangs_ends_the_cycle_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "ACTION_TIMEOUT_S", 0.01)
    service = FakeService("browser", "browser", state=ServiceState.FAILED)

    async def hang() -> None:
        await asyncio.Event().wait()

    service.restart = hang  # type: ignore[method-assign]
    async with watched(with_services(tmp_path, AUTO, service)) as scene:
        await scene.pass_s(60)
        assert (await scene.story())[-1] == "restart_service failed"


async def test_a_probe_that_hangs_or_fails_stops_no_other_and_resolves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "PROBE_TIMEOUT_S", 1.0)
    clock_free = asyncio.Event()
    looks_count = 0

    async def hang(_moment: Moment) -> tuple[Finding, ...]:
        nonlocal looks_count
        looks_count += 1
        while not clock_free.is_set():
            try:
                await clock_free.wait()
            except asyncio.CancelledError:
                continue
        return ()

    async def fail(_moment: Moment) -> tuple[Finding, ...]:
        raise ZeroDivisionError

    browser = FakeService("browser", "browser", state=ServiceState.FAILED)
    workshop = with_services(tmp_path, OBSERVE, browser)
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        assert await scene.subjects() == [("browser", "browser")]
        dog = scene.engine.watchdog
        dog.probes = {**dog.probes, HealingDomain.BROWSER: hang, HealingDomain.DISK: fail}
        scene.clock.problem = "/home/artifacts is no folder"
        try:
            await scene.pass_s(120)
            found = await scene.subjects()
        finally:
            clock_free.set()
        # On a busy machine another look may take longer than the limit of this test, too.
        assert {*found} >= {("artifact", "folder"), ("browser", "browser"), ("browser", "check"), ("disk", "check")}
        assert looks_count == 1
        await scene.pass_s(180)
        left = {*await scene.subjects()}
        assert left >= {("artifact", "folder"), ("disk", "check")}
        assert not left & {("browser", "browser"), ("browser", "check")}


async def test_the_disk_is_told_low_then_full_and_swept_in_auto(tmp_path: Path) -> None:
    workshop = watched_workshop(tmp_path, [], AUTO)
    async with watched(workshop) as scene:
        scene.clock.space_bytes = DISK_LOW_BYTES - 1
        await scene.pass_s(30)
        assert await scene.story() == ["opened disk", "sweep_artifacts begun"]
        scene.clock.space_bytes = DISK_FULL_BYTES - 1
        await scene.pass_s(30)
        (row,) = await scene.incidents()
        assert (row.severity, row.opened_count) == (Severity.CRITICAL, 2)
        scene.clock.space_bytes = DISK_LOW_BYTES
        await scene.pass_s(60)
        assert (await scene.story())[-1] == "resolved gone"


class GrownLog:
    def __init__(self) -> None:
        self.bytes_count = LOG_BYTES_MAX + 1
        self.is_held = True

    async def size(self) -> JournalSize:
        return JournalSize(file_bytes=0, log_bytes=self.bytes_count, free_bytes=0)

    async def give_back(self, bytes_max: int) -> int:
        return 0

    async def empty_log(self) -> bool:
        if self.is_held:
            return False
        self.bytes_count = 0
        return True


async def test_a_log_that_grew_is_emptied_once_nothing_holds_it(tmp_path: Path) -> None:
    grown = GrownLog()
    workshop = watched_workshop(tmp_path, [], AUTO)
    workshop.healing = replace(workshop.healing, log=grown)
    async with watched(workshop) as scene:
        await scene.pass_s(60)
        assert await scene.story() == ["opened journal", "empty_journal_log begun", "empty_journal_log failed"]
        grown.is_held = False
        await scene.pass_s(120)
        assert (await scene.story())[-2:] == ["empty_journal_log begun", "resolved gone"]


async def test_the_real_log_is_measured_and_emptied(tmp_path: Path) -> None:
    async with watched(watched_workshop(tmp_path, [], OBSERVE)) as scene:
        journal = scene.engine._setup.healing.log
        assert journal is not None
        await scene.engine._setup.journal.checkpoint()
        assert (await journal.size()).log_bytes >= 0

        async def is_emptied() -> bool:
            # The daemon queues its own jobs meanwhile, so the log may grow again at once.
            return await journal.empty_log() and (await journal.size()).log_bytes == 0

        await until(is_emptied, "an empty log")


async def test_policies_and_artifacts_that_fail_are_told(tmp_path: Path) -> None:
    workshop = watched_workshop(tmp_path, [], AUTO)
    workshop.policy_state = lambda: "broken: a.cedar line 3"
    async with watched(workshop) as scene:
        scene.clock.problem = "/home/artifacts is no folder"
        await scene.pass_s(30)
        assert await scene.subjects() == [("artifact", "folder"), ("policy", "policies")]
        evidence = [record.evidence for record in await scene.engine.incidents.list(IncidentStatus.OPEN, "", 10)]
        assert any("a.cedar line 3" in words for words in evidence)


async def test_the_real_machine_tells_space_and_the_folder_of_artifacts(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    machine = LocalMachine(tmp_path, folder)
    assert await machine.free_bytes() > 0
    assert machine.monotonic_ms() <= machine.monotonic_ms()
    assert "is no folder" in await machine.artifacts_problem()
    folder.mkdir()
    assert await machine.artifacts_problem() == ""
    with pytest.raises(Unavailable, match="home_unreadable"):
        await LocalMachine(tmp_path / "gone", folder).free_bytes()


async def test_blocks_of_the_loop_are_told_with_the_place_and_without_secrets(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "x7Kq9ZbT3mWvR5nY8cLd2HfG" * 4
    blocks = [
        LoopBlock(at_ms=1, blocked_s=6.0, stack="x.py: sleep"),
        LoopBlock(at_ms=2, blocked_s=31.0, stack=f"key = {secret}", is_from_before=True),
    ]

    def take() -> tuple[LoopBlock, ...]:
        taken = tuple(blocks)
        blocks.clear()
        return taken

    workshop = watched_workshop(tmp_path, [], AUTO)
    workshop.healing = replace(workshop.healing, loop_blocks=take)
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        (record,) = await scene.engine.incidents.list(None, "", 10)
        assert record.severity is Severity.CRITICAL
        assert "31.0 s" in record.evidence
        assert "sk-ant" not in record.evidence
        await scene.pass_s(60)
        assert await scene.story() == ["opened loop", "resolved gone"]


async def test_a_person_acts_under_observe_only_and_resolves_by_hand(tmp_path: Path) -> None:
    browser = FakeService("browser", "browser", state=ServiceState.FAILED, is_broken=True)
    async with watched(with_services(tmp_path, OBSERVE, browser)) as scene:
        await scene.pass_s(30)
        (row,) = await scene.incidents()
        acted = await scene.engine.incidents.act(OWNER, row.id)
        assert (acted.outcome, acted.incident.actions_count, browser.restarts_count) == ("restarted", 1, 1)
        record = await scene.engine.incidents.resolve(OWNER, row.id, "I know of it")
        assert (record.status, record.resolution) == (IncidentStatus.RESOLVED, Resolution.BY_HAND)
        assert record.last == "by_hand: I know of it"
        await scene.pass_s(1_800)
        assert await scene.incidents() == []
        await scene.pass_s(1_860)
        assert len(await scene.incidents()) == 1
        with pytest.raises(Conflict, match="incident_resolved"):
            await scene.engine.incidents.act(OWNER, row.id)
        with pytest.raises(NotFound, match="incident_unknown"):
            await scene.engine.incidents.get(IncidentId("0" * 26))
        tape = await scene.tape()
        assert {event.actor for event in tape} == {"system:healing", OWNER}


async def test_what_a_person_resolved_opens_again_if_it_was_gone_meanwhile_also_over_a_restart(tmp_path: Path) -> None:
    state = ["mine.cedar:1 is wrong"]
    workshop = watched_workshop(tmp_path, [], OBSERVE)
    workshop.policy_state = lambda: state[0]
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        (row,) = await scene.incidents()
        await scene.engine.incidents.resolve(OWNER, row.id, "")
        await scene.pass_s(60)
        assert await scene.incidents() == []
        state[0] = "ok"
        await scene.pass_s(30)
    state[0] = "mine.cedar:2 is wrong"
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        (again,) = await scene.incidents()
        assert (again.id, again.opened_count) == (row.id, 2)
        assert await scene.story() == ["opened policy", "resolved by_hand", "resolved gone", "opened policy"]


async def test_an_incident_shows_what_is_found_now_also_after_a_restart(tmp_path: Path) -> None:
    state = ["x.cedar and y.cedar are wrong; the policies read before stay in force"]
    workshop = watched_workshop(tmp_path, [], OBSERVE)
    workshop.policy_state = lambda: state[0]
    async with watched(workshop) as scene:
        await scene.pass_s(60)
        state[0] = "y.cedar is wrong; the policies read before stay in force"
        await scene.pass_s(60)
        (row,) = await scene.incidents()
        assert "x.cedar" not in (await scene.engine.incidents.get(row.id)).evidence
    state[0] = "y.cedar is wrong; everything is refused"
    async with watched(workshop) as scene:
        await scene.pass_s(300)
        record = await scene.engine.incidents.get(row.id)
        assert "everything is refused" in record.evidence
        assert record.opened_count == 1
        assert await scene.story() == ["opened policy"] * 3


async def test_what_has_no_remedy_is_not_acted_on(tmp_path: Path) -> None:
    workshop = watched_workshop(tmp_path, [], OBSERVE)
    workshop.policy_state = lambda: "broken"
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        (row,) = await scene.incidents()
        with pytest.raises(Conflict, match="incident_without_remedy"):
            await scene.engine.incidents.act(OWNER, row.id)


async def test_a_disabled_domain_is_not_looked_at_and_closes_what_was_open(tmp_path: Path) -> None:
    browser = FakeService("browser", "browser", state=ServiceState.FAILED)
    workshop = with_services(tmp_path, OBSERVE, browser)
    async with watched(workshop) as scene:
        await scene.pass_s(30)
        assert len(await scene.incidents()) == 1

    async def untouched() -> None:
        raise AssertionError

    browser.health = untouched  # type: ignore[method-assign, assignment]
    modes = HealingModes(mode=OBSERVE, domains={HealingDomain.BROWSER: DISABLED})
    workshop.healing = replace(workshop.healing, modes=modes)
    async with watched(workshop) as scene:
        await scene.pass_s(60)
        assert await scene.story() == ["opened browser", "resolved unwatched"]


async def test_the_table_is_verified_and_rebuilt(tmp_path: Path) -> None:
    broken = FakeService("browser", "browser", state=ServiceState.FAILED, is_broken=True)
    other = FakeService("mcp files", "mcp", state=ServiceState.FAILED)
    async with watched(with_services(tmp_path, AUTO, broken, other)) as scene:
        await scene.pass_s(600)
        rows = await scene.incidents(None)
    assert len(rows) == 2
    home = Home(tmp_path)
    assert verify_summary(home)["ok"] is True
    assert rebuild_projections(home) == 0
    change_from_outside(home.journal, "UPDATE incidents SET acted_count = 9 WHERE domain = 'mcp'")
    change_from_outside(home.journal, "DELETE FROM incidents WHERE domain = 'browser'")
    found = verify_summary(home)
    assert found["ok"] is False
    assert rebuild_projections(home) == 2
    assert verify_summary(home)["ok"] is True
    async with watched(with_services(tmp_path, OBSERVE)) as scene:
        assert await scene.incidents(None) == rows
