"""Providers that fail, behind a real daemon: every run ends in the right state and says what to do, or another model answers.

All cases run at once on one daemon, each with models of its own, so none of them may disturb another. Small timeouts are
set only where a silence is to be ended by them; all others are so long that a run which they end fails its test.
"""

import time
from calendar import timegm
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_providers import Providers, close_at_once, reset_after_the_request, section
from tests.support.daemons import Daemon
from tests.support.provider_answers import ADAPTERS, chat, half_hello, hello
from tests.support.stand_in_provider import Played, StandInProvider, events, refusal

Json = dict[str, Any]
Place = Callable[[Providers, str], str]
KINDS = sorted(ADAPTERS)
SHORT_S = 0.3
PATIENCE_MS = 180_000  # For all runs at once on a busy machine.
LONG_S = 300.0  # A limit that must not be what ends a run.
STARTERS = 4
FALLBACK = "Here I am."
HALF = "Hel"
CLOCK_SLACK_S = 0.05


def plays(*answers: Played) -> Place:
    return lambda providers, _kind: providers.play(*answers).url


def halves(then: str = "end", more: bytes = b"") -> Place:
    """Begins as a good answer does, and then `more`."""
    return lambda providers, kind: providers.play(Played(body=half_hello(kind) + more, then=then)).url


@dataclass(frozen=True)
class Case:
    """`advice` is what the run's message must hold: what a person is to do about it."""

    place: Place
    code: str
    advice: str
    settings: Mapping[str, float] = field(default_factory=dict)
    reason: str = "provider_error"


ADVICE = {
    "network": "Check `base_url` and the network",
    "timeout": "Raise the provider's timeouts, or use a faster model",
    "protocol": "Check `kind` and `base_url`",
    "overloaded": "Try again later, or add another model to the route",
    "rate": "Wait, raise the limit there, or add another model to the route",
    "auth": "Check `api_key` of the provider",
    "quota": "Top it up, or use another provider",
    "bad_request": "Check the model's `id` and `base_url`",
    "content_filter": "Rephrase it, or use another model",
    "context_length": "Shorten it (palyra sessions compact), start a new session, or use a model with a larger window",
}
ERROR_EVENT = events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
PAGE = Played(body=b"<html><body>Please log in</body></html>", content_type="text/html")
WHOLE = Played(body=b'{"choices":[{"message":{"content":"Hi"}}]}', content_type="application/json")
NOISE = Played(body=bytes(range(256)) * 64, content_type="application/octet-stream")
IMPATIENT = {"first_token_timeout_s": SHORT_S}
RESTLESS = {"idle_timeout_s": SHORT_S}


def fails(code: str, place: Place, **settings: float) -> Case:
    return Case(place, code, ADVICE[code], settings)


# Before the first word. Another model may do better.
MENDABLE = {
    "dies-refused": fails("network", lambda providers, _kind: providers.refuse_connections()),
    "dies-at-once": fails("network", lambda providers, _kind: providers.serve_raw(close_at_once)),
    "dies-reset": fails("network", lambda providers, _kind: providers.serve_raw(reset_after_the_request)),
    "dies-after-headers": fails("network", plays(Played(then="cut"))),
    "dies-after-a-ping": fails("network", plays(Played(body=b": ping\n\n", then="cut"))),
    "says-nothing": fails("network", plays(Played())),
    "stalls-before-headers": fails("timeout", plays(Played(is_silent=True)), **IMPATIENT),
    "stalls-after-headers": fails("timeout", plays(Played(then="stall")), **IMPATIENT),
    "stalls-with-pings": fails("timeout", plays(Played(body=b": ping\n\n", then="endless")), **IMPATIENT),
    "stalls-in-a-refusal": fails("overloaded", plays(Played(status=500, then="stall")), **RESTLESS),
    "garbage-page": fails("protocol", plays(PAGE)),
    "garbage-json": fails("protocol", plays(WHOLE)),
    "garbage-noise": fails("protocol", plays(NOISE)),
    "garbage-no-http": fails("protocol", plays(Played(raw=b"\x00\xff\x13garbage\r\n\r\n", then="cut"))),
    "garbage-event": fails("protocol", plays(Played(body=b"data: no JSON at all\n\n"))),
    "garbage-line-without-end": fails("protocol", plays(Played(then="endless"))),
    "garbage-refusal-without-end": fails("overloaded", plays(Played(status=500, then="endless"))),
    "redirects": fails("protocol", plays(refusal(307, "Over there", {"Location": "http://127.0.0.1:1/"}))),
    "busy": fails("overloaded", plays(refusal(503, "Come back later"))),
    "error-event": fails("overloaded", plays(Played(body=ERROR_EVENT))),
    "rate": fails("rate", plays(refusal(429, "Slow down"))),
    "401": fails("auth", plays(refusal(401, "Invalid API key"))),
    "402": fails("quota", plays(refusal(402, "Insufficient Balance"))),
    "403": fails("auth", plays(refusal(403, "This key may not use that model"))),
    "429-quota": fails("quota", plays(refusal(429, "You exceeded your current quota", code="insufficient_quota"))),
}
# The request itself is at fault, and stays so elsewhere.
INHERENT = {
    "404": fails("bad_request", plays(refusal(404, "The model `x` does not exist", code="model_not_found"))),
    "400": fails("bad_request", plays(refusal(400, "Unknown parameter"))),
    "content-filter": fails("content_filter", plays(refusal(400, "Filtered", code="content_filter"))),
    "context-length": Case(
        plays(refusal(400, "prompt is too long: 210000 tokens > 200000 maximum")),
        "context_length",
        ADVICE["context_length"],
        reason="context_exhausted",
    ),
}
# After the first word.
HALVED = {
    "closes": fails("network", halves("end")),
    "breaks": fails("network", halves("cut")),
    "stalls": fails("timeout", halves("stall"), **RESTLESS),
    "errs": fails("overloaded", halves(more=ERROR_EVENT)),
}
CASES = {**MENDABLE, **INHERENT, **HALVED}


def on_kinds(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("model", [f"{name}_{kind}" for name in cases for kind in KINDS])


def on_routes(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("route", [f"route_{name}" for name in cases])


class Trial:
    """One daemon and every provider behind it. Runs are started when it opens and looked at by the tests."""

    def __init__(self, daemon: Daemon, providers: Providers) -> None:
        self.daemon = daemon
        self._providers = providers
        self._sections: list[str] = []
        self._run_ids: dict[str, str] = {}
        self.stand_ins: dict[str, StandInProvider] = {}

    def configure(self) -> None:
        good = {kind: self._providers.play(Played(body=hello(kind))).url for kind in KINDS}
        for kind, url in good.items():
            self.add(f"good_{kind}", kind, url)
        spare = self._providers.play(Played(body=chat({"content": FALLBACK})))
        self.add("spare", "openai-chat", spare.url)
        for number, (name, case) in enumerate(CASES.items()):
            for kind in KINDS:
                self.add(f"{name}_{kind}", kind, case.place(self._providers, kind), **case.settings)
            kind = KINDS[number % len(KINDS)]
            self.add(f"first_{name}", kind, case.place(self._providers, kind), **case.settings)
            self._sections.append(section("route", name=f"route_{name}", models=[f"first_{name}", "spare"]))
        self.play("filtered", Played(body=hello("openai-chat")))
        for name in ("breaking_first", "later"):
            self.play(name, refusal(500, "Broken"))
        self._sections.append(section("route", name="breaking", models=["breaking_first", "spare"]))
        for name in ("seconds", "date", "hour", "once", "half"):
            self.play(name, Played(), retries=1)
        (self.daemon.home / "palyra.toml").write_text("\n".join(self._sections))

    def add(self, name: str, kind: str, url: str, **settings: float) -> None:
        """A provider with one model of the same name."""
        long = dict.fromkeys(("connect_timeout_s", "first_token_timeout_s", "idle_timeout_s"), LONG_S)
        own = {"retries": 0, **long, **settings}
        self._sections.append(section("provider", name=name, kind=kind, base_url=url, **own))
        self._sections.append(section("model", name=name, provider=name))

    def play(self, name: str, answer: Played, **settings: float) -> None:
        """One whose answers a test will set."""
        self.stand_ins[name] = self._providers.play(answer)
        self.add(name, "openai-chat", self.stand_ins[name].url, **settings)

    def start_all(self) -> None:
        models = [f"{name}_{kind}" for name in CASES for kind in KINDS] + [f"route_{name}" for name in CASES]
        with ThreadPoolExecutor(STARTERS) as pool:
            self._run_ids = dict(zip(models, pool.map(self._start, models), strict=True))

    def ended(self, model: str) -> tuple[Json, list[Json]]:
        """The run that was started with this model, over: its record, and its events on the tape."""
        return self._wait(self._run_ids[model])

    def run(self, model: str) -> tuple[Json, list[Json]]:
        return self._wait(self._start(model))

    def wait_for_all(self) -> None:
        for run_id in self._run_ids.values():
            self._wait(run_id)

    def health(self) -> dict[str, str]:
        return {item["name"]: item["health"] for item in self.daemon.call("GET", "/api/v1/models")[1]["items"]}

    def _start(self, model: str) -> str:
        status, record = self.daemon.call("POST", "/api/v1/runs", {"text": "Hi.", "model": model})
        assert status == 202, record
        run_id: str = record["id"]
        return run_id

    def _wait(self, run_id: str) -> tuple[Json, list[Json]]:
        for _frame in self.daemon.follow(run_id):
            pass
        record = self.daemon.call("GET", f"/api/v1/runs/{run_id}")[1]
        tape = self.daemon.call("GET", f"/api/v1/sessions/{record['session_id']}/tape")[1]["events"]
        return record, [event for event in tape if event["run_id"] == run_id]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    home: Path = tmp_path_factory.mktemp("failing") / "home"
    with Providers() as providers:
        trial = Trial(Daemon(home), providers)
        trial.configure()
        with trial.daemon:
            trial.start_all()
            yield trial


def of_type(tape: list[Json], type_name: str) -> list[Json]:
    return [event["data"] for event in tape if event["type"] == type_name]


def waited_ms(tape: list[Json]) -> int:
    asked = next(event for event in tape if event["type"] == "model.requested")
    ended: int = tape[-1]["at_ms"] - asked["at_ms"]
    return ended


@on_kinds({**MENDABLE, **INHERENT})
def test_a_failed_call_ends_the_run_and_says_what_to_do(trial: Trial, model: str) -> None:
    case = CASES[model.rpartition("_")[0]]
    record, tape = trial.ended(model)
    (failed,) = of_type(tape, "model.failed")
    assert (record["state"], record["reason"], record["answer"]) == ("failed", case.reason, None)
    assert (failed["code"], failed["model"]) == (case.code, model)
    assert record["error"]["code"] == case.reason
    assert record["error"]["message"].startswith(failed["message"])
    assert failed["message"].startswith(f"{model} ")
    assert case.advice in failed["message"]
    assert (of_type(tape, "model.output"), of_type(tape, "usage.recorded")) == ([], [])
    assert waited_ms(tape) < PATIENCE_MS


@on_routes(MENDABLE)
def test_the_next_model_of_the_route_answers_and_the_tape_says_so(trial: Trial, route: str) -> None:
    record, tape = trial.ended(route)
    (planned,) = of_type(tape, "route.planned")
    (output,) = of_type(tape, "model.output")
    (usage,) = of_type(tape, "usage.recorded")
    assert (record["state"], record["answer"]) == ("done", FALLBACK)
    assert (planned["chosen"], planned["fallbacks"]) == (route.replace("route_", "first_", 1), ["spare"])
    assert (output["model"], output["text"], usage["model"]) == ("spare", FALLBACK, "spare")
    assert waited_ms(tape) < PATIENCE_MS


@on_routes(INHERENT)
def test_a_request_that_is_itself_at_fault_is_asked_of_nobody_else(trial: Trial, route: str) -> None:
    case = CASES[route.removeprefix("route_")]
    record, tape = trial.ended(route)
    (failed,) = of_type(tape, "model.failed")
    assert (record["state"], record["reason"], failed["code"]) == ("failed", case.reason, case.code)
    assert of_type(tape, "model.output") == []


@on_kinds(HALVED)
def test_half_an_answer_is_marked_paid_for_and_never_the_answer(trial: Trial, model: str) -> None:
    record, tape = trial.ended(model)
    outputs, usages = of_type(tape, "model.output"), of_type(tape, "usage.recorded")
    assert (record["state"], record["reason"], record["answer"]) == ("failed", "provider_error", None)
    assert {(output["text"], output["finish"]) for output in outputs} == {(HALF, "interrupted")}
    assert [usage["is_estimate"] for usage in usages] == [True] * len(outputs)
    assert "broke off" in record["error"]["message"]
    assert of_type(tape, "message.assistant") == []
    assert waited_ms(tape) < PATIENCE_MS


@on_routes(HALVED)
def test_half_an_answer_is_never_joined_with_that_of_another_model(trial: Trial, route: str) -> None:
    record, tape = trial.ended(route)
    for output in of_type(tape, "model.output"):
        assert (output["text"], output["finish"]) in [(HALF, "interrupted"), (FALLBACK, "stop")]
    assert record["answer"] in (None, FALLBACK)
    assert waited_ms(tape) < PATIENCE_MS


@on_routes(HALVED)
def test_an_answer_that_breaks_off_is_asked_of_the_next_model(trial: Trial, route: str) -> None:
    record, tape = trial.ended(route)
    assert (record["state"], record["answer"]) == ("done", FALLBACK)
    assert of_type(tape, "usage.recorded")[-1]["model"] == "spare"


@pytest.mark.parametrize("name", HALVED)
def test_a_run_whose_answers_break_off_says_what_to_do(trial: Trial, name: str) -> None:
    record, _ = trial.ended(f"{name}_openai-chat")
    assert CASES[name].advice in record["error"]["message"]


def test_what_a_content_filter_cut_off_is_no_final_answer(trial: Trial) -> None:
    trial.stand_ins["filtered"].answers = [Played(body=chat({"content": "So "}, finish="content_filter"))]
    record, tape = trial.run("filtered")
    assert of_type(tape, "model.output")[0]["finish"] == "content_filter"
    assert (record["state"], record["reason"], record["answer"]) == ("failed", "incomplete_answer", None)
    assert "content filter" in record["error"]["message"]


def test_the_turn_after_half_an_answer_is_a_new_one(trial: Trial) -> None:
    trial.stand_ins["half"].answers = [
        Played(body=half_hello("openai-chat"), then="cut"),
        Played(body=chat({"content": "All of it."})),
    ]
    record, tape = trial.run("half")
    outputs = of_type(tape, "model.output")
    assert (record["state"], record["answer"]) == ("done", "All of it.")
    assert [(each["turn"], each["finish"]) for each in outputs] == [(1, "interrupted"), (2, "stop")]
    said = [asked.body["messages"] for asked in trial.stand_ins["half"].asked]
    assert said[0] == said[1]


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_before_the_first_token_a_busy_provider_is_asked_again(trial: Trial, status: int) -> None:
    stand_in = trial.stand_ins["once"]
    stand_in.answers = [refusal(status, "Busy", {"Retry-After": "0"}), Played(body=chat({"content": "Now."}))]
    asked_before = len(stand_in.asked)
    record, tape = trial.run("once")
    assert (record["state"], record["answer"]) == ("done", "Now.")
    assert len(stand_in.asked) - asked_before == 2
    assert of_type(tape, "model.failed") == []


def test_retry_after_in_seconds_is_kept(trial: Trial) -> None:
    stand_in = trial.stand_ins["seconds"]
    stand_in.answers = [refusal(429, "Slow down", {"Retry-After": "1"}), Played(body=chat({"content": "Now."}))]
    record, _ = trial.run("seconds")
    assert record["answer"] == "Now."
    assert stand_in.asked[1].at_s - stand_in.asked[0].at_s >= 1 - CLOCK_SLACK_S


def test_retry_after_as_a_date_is_kept(trial: Trial) -> None:
    stand_in = trial.stand_ins["date"]
    due_s = int(time.time()) + 2
    wait = {"Retry-After": formatdate(due_s, usegmt=True)}
    stand_in.answers = [refusal(429, "Slow down", wait), Played(body=chat({"content": "Now."}))]
    record, _ = trial.run("date")
    assert record["answer"] == "Now."
    assert stand_in.asked[1].at_s >= due_s - CLOCK_SLACK_S


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_wait_that_is_too_long_ends_the_run_and_says_until_when(trial: Trial, form: str) -> None:
    stand_in = trial.stand_ins["hour"]
    begun_s = time.time()
    due = {"seconds": "3600", "date": formatdate(begun_s + 3600, usegmt=True)}
    stand_in.answers = [refusal(429, "Slow down", {"Retry-After": due[form]})]
    asked_before = len(stand_in.asked)
    record, tape = trial.run("hour")
    _, _, moment = record["error"]["message"].removesuffix(" UTC.").rpartition("It may be asked again after ")
    told_s = timegm(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))
    assert begun_s + 3598 <= told_s <= time.time() + 3601
    assert ADVICE["rate"] in record["error"]["message"]
    assert (record["state"], record["reason"]) == ("failed", "provider_error")
    assert len(stand_in.asked) - asked_before == 1
    assert waited_ms(tape) < PATIENCE_MS


def test_a_model_that_keeps_failing_is_passed_over_until_a_check_of_it_succeeds(trial: Trial) -> None:
    broken = trial.stand_ins["breaking_first"]
    chosen = []
    for _ in range(4):
        record, tape = trial.run("breaking")
        assert (record["state"], record["answer"]) == ("done", FALLBACK)
        chosen += [
            (plan["chosen"], plan["candidates"][0].get("reasons", [])) for plan in of_type(tape, "route.planned")
        ]
    assert chosen == [("breaking_first", [])] * 3 + [("spare", ["circuit_open"])]
    assert len(broken.asked) == 3
    health = trial.health()
    assert (health["breaking_first"], health["spare"]) == ("open", "ok")
    broken.answers = [Played(body=chat({"content": "Back."}))]
    assert trial.daemon.call("POST", "/api/v1/models/breaking_first/check", {})[1]["ok"] is True
    assert trial.health()["breaking_first"] == "ok"
    assert trial.run("breaking")[0]["answer"] == "Back."


def test_a_run_for_which_no_model_is_left_says_so(trial: Trial) -> None:
    told = [trial.run("later")[0]["error"]["message"] for _ in range(4)]
    assert all(ADVICE["overloaded"] in message for message in told[:3])
    assert "later (circuit_open)" in told[3]
    assert "`palyra models check` says what is wrong" in told[3]
    assert len(trial.stand_ins["later"].asked) == 3


def test_after_all_of_this_the_daemon_is_well_and_good_providers_answer(trial: Trial) -> None:
    trial.wait_for_all()
    assert trial.daemon.call("GET", "/healthz") == (200, {"status": "ok"})
    assert trial.daemon.call("GET", "/readyz")[0] == 200
    for kind in KINDS:
        record, tape = trial.run(f"good_{kind}")
        assert (record["state"], record["answer"]) == ("done", "Hello.")
        assert of_type(tape, "usage.recorded")[-1]["model"] == f"good_{kind}"
    errors = [line for line in trial.daemon.log().splitlines() if '"level": "error"' in line]
    assert not errors, "\n".join(errors)
    assert "Traceback" not in trial.daemon.log()
    assert trial.daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
