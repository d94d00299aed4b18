"""One event is one line of the log, whatever anybody wrote into it, on a terminal and elsewhere."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.app.logs import cleaned, configure_log
from palyra.core.redaction import KnownSecrets
from palyra.engine.engine import Engine
from tests.gateway.scene import Failing, Scene

EVIL = "ok\nERROR forged \x1b[2Jline\r\x85\u2028\u202eend\x00"
BREAKS = ("\n", "\r", "\x1b", "\x85", "\u2028", "\u202e", "\x00")


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture(params=[False, True], ids=["file", "terminal"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    stream = Stream(request.param)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)
    root, ours = logging.getLogger(), logging.getLogger("palyra")
    before, level, our_level = list(root.handlers), root.level, ours.level
    configure_log(KnownSecrets())
    structlog.configure(cache_logger_on_first_use=False)
    yield stream
    root.handlers = before
    root.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


def lines_of(log: Stream) -> list[str]:
    text = log.getvalue()
    assert text.endswith("\n")
    for mark in BREAKS[1:]:
        if mark != "\x1b":  # A terminal's own colours.
            assert mark not in text
    return text[:-1].split("\n")


def test_what_anybody_writes_makes_no_second_line(log: Stream) -> None:
    structlog.get_logger().info(EVIL, name=EVIL, names=[EVIL], **{"head\ner": EVIL})
    (line,) = lines_of(log)
    assert "\x1b[2J" not in line
    assert "forged" in line


def test_what_libraries_log_joins_it(log: Stream) -> None:
    logging.getLogger("uvicorn.error").error("Invalid %s", EVIL)
    logging.getLogger("palyra.gateway").info("refused %s", EVIL)
    logging.getLogger("httpx").info("too much of a good thing")
    assert len(lines_of(log)) == 2


def test_a_traceback_is_marked_as_the_one_event_it_is(log: Stream) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as cause:
        logging.getLogger("palyra.gateway").error("internal error", exc_info=cause)
    first, *further = lines_of(log)
    assert "internal error" in first
    assert "\x1b[2J" not in log.getvalue()
    assert all(line.startswith(("    |", "Traceback", "\x1b")) for line in further)
    assert not any(line.startswith("ERROR forged") for line in further)
    if not log.isatty():
        assert further == []
        assert "forged" in json.loads(first)["exception"]


class StubSessions:
    async def resolve(self, *_: object) -> None:
        return None


class StubEngine:
    """As much of an engine as these requests reach; a real one has lines of its own in the log."""

    owners = acts = None
    sessions = StubSessions()
    status = SimpleNamespace(is_draining=False)


async def test_no_request_writes_a_line_of_its_own(log: Stream) -> None:
    scene = Scene(cast(Engine, StubEngine()))
    await scene.raw(
        "GET", f"/api/v1/runs/{EVIL}", "", [("authorization", "Bearer x\nforged"), ("host", EVIL[:20])], [b""]
    )
    await scene.ask("GET", "/api/v1/sessions/a%0aforged", token="palyra_\x1b[31m")
    await scene.ask("POST", "/api/v1/sessions", {"key": EVIL, "label": EVIL}, {"user-agent": "x\r\nforged: y"})
    scene.engine.runs = Failing(RuntimeError(f"of {EVIL}"))
    assert (await scene.ask("POST", "/api/v1/runs", {"text": EVIL})).status == 500
    lines = lines_of(log)
    assert sum("refused a request from 127.0.0.1" in line for line in lines) == 2
    assert not any(line.lstrip().startswith(("ERROR forged", "forged")) for line in lines)
    if not log.isatty():
        assert [json.loads(line)["level"] for line in lines] == ["info", "info", "error"]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.text(),
    value=st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner), max_leaves=5),
)
def test_nothing_unprintable_is_left(name: str, value: object) -> None:
    (found,) = cleaned(KnownSecrets(), {f"x{name}": value}).items()
    assert str(found[0]).isprintable()
    assert all(text.isprintable() for text in texts_in(found[1]))


def texts_in(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def test_no_key_of_ours_is_in_it() -> None:
    known, key = KnownSecrets(), "sk-very-secret-0123456789"
    known.add(key)
    assert key not in str(cleaned(known, {"event": f"it said {key}", "all": [key], "other": {"key": key}}))
