"""A run that uses the browser: looking is free, a click and typed text ask, and everything is recorded with its source."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.browser.sessions import BrowserSettings
from palyra.adapters.browser.source import BrowserSource
from palyra.adapters.net.guard import Guard
from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import ScriptedProvider
from palyra.core.context.messages import ToolMessage
from palyra.core.events import Event
from palyra.core.events.tool import ApprovalStatus, Decision, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from palyra.ports.provider import ModelRequest
from tests.browser.scenes import needs_chromium, ref_of
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.sites import LOOPBACK, Site, ok, site
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S
FORM = b'<title>Form</title><form action="/sent"><input name=q aria-label=Name><button>Send</button></form>'


class Visitor(ScriptedProvider):
    """Opens a page, fills in its form by the refs it was shown, looks, and is done."""

    def __init__(self, url: str) -> None:
        super().__init__([])
        self._url = url

    def _choose(self, request: ModelRequest) -> Turn:
        shown = [message.text for message in request.messages if isinstance(message, ToolMessage)]
        last = next((text for text in reversed(shown) if "[e" in text), "")
        match len(shown):
            case 0:
                return calls("browser.open", url=self._url)
            case 1:
                return calls("browser.type", ref=ref_of(last, "Name"), text="plum")
            case 2:
                return calls("browser.click", ref=ref_of(last, "Send"))
            case 3:
                return calls("browser.read")
            case 4:
                return calls("browser.screenshot")
            case _:
                return says("Sent.")


async def run_it(engine: Engine, home: Site, decision: Decision) -> list[Event]:
    record = await engine.runs.start(OWNER, ask(f"Fill in {home.url}/ please"))
    answering = asyncio.create_task(answer_all(engine, record, decision))
    try:
        async with asyncio.timeout(TEST_S):
            return await finished(engine, record)
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def answer_all(engine: Engine, record: RunRecord, decision: Decision) -> None:
    """What people are shown must say what the ref stands for."""
    while True:
        for card in await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING)):
            assert card.preview is not None
            assert re.search(r'^(textbox "Name"|button "Send"), as the page showed it\non http', card.preview)
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=decision))
        await asyncio.sleep(0.02)


def verdicts(events: Sequence[Event]) -> list[tuple[Verdict, str]]:
    return [(event.data.verdict, event.data.rule) for event in events if isinstance(event.data, ToolJudged)]


async def visit(root: Path, decision: Decision) -> tuple[list[Event], list[bytes]]:
    needs_chromium()
    async with site() as home:
        home.answers["/"] = ok(FORM, media="text/html")
        home.answers["/sent?q=plum"] = ok(b"<title>Thanks</title><p>received</p>", media="text/html")
        source = BrowserSource(Guard([(LOOPBACK, home.port)]), root / "browser", BrowserSettings())
        workshop = Workshop(root, Visitor(f"{home.url}/"))
        workshop.sources = [source]
        try:
            async with workshop.open() as engine:
                return await run_it(engine, home, decision), home.requests
        finally:
            await source.close()


async def test_run_looks_freely_and_asks_before_it_touches(tmp_path: Path) -> None:
    events, requests = await visit(tmp_path, Decision.ALLOW)
    assert events[-1].type == "run.done"
    free, asked = Verdict.ALLOW, Verdict.ASK
    assert [verdict for verdict, _ in verdicts(events)] == [free, asked, asked, free, free]
    ended = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert {(each.outcome, each.source) for each in ended} == {(Outcome.OK, f"http:{LOOPBACK}")}
    assert all(each.attestation is not None and each.attestation.sandbox == "chromium" for each in ended)
    assert "received" in (ended[2].output or "")
    assert [made.media_type for made in ended[4].made] == ["image/png"]
    assert any(b"GET /sent?q=plum" in request for request in requests)


async def test_denied_click_is_never_made(tmp_path: Path) -> None:
    events, requests = await visit(tmp_path, Decision.DENY)
    assert events[-1].type == "run.done"
    assert not any(b"/sent" in request for request in requests)
    assert (Verdict.ASK, "tainted_act") in verdicts(events)
