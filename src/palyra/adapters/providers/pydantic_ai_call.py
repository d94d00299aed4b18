"""One call of a vendor's model: its stream as our deltas, its timeouts, and closing it.

Does not own: attempts (pydantic_ai_vendors).
Calls are passed on whole, at the end: nobody sees half of one. Everything that can go wrong is a last delta `Failed`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress

import msgspec
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.usage import RequestUsage

from palyra.adapters.net.client import Timeouts
from palyra.adapters.providers.exchange import BodyDraft
from palyra.adapters.providers.failures import broken, failed
from palyra.adapters.providers.provider_state import keep
from palyra.adapters.providers.pydantic_ai_failures import FAULTS, tell
from palyra.adapters.providers.pydantic_ai_messages import keep_answer, make_messages, make_parameters, make_settings
from palyra.adapters.providers.usage_counts import believe
from palyra.core.errors import Unavailable
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.ports.provider import CallDelta, Completed, Delta, Failed, ReasoningDelta, TextDelta

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
    "tool_call": Finish.TOOL_CALLS,
}


class VendorCall:
    """`has_begun` says whether the vendor said anything: from then on the call may have been paid for."""

    def __init__(self, model: Model, draft: BodyDraft, provider: str, key: str | None) -> None:
        self._model = model
        self._draft = draft
        self._provider = provider
        self._key = key
        self.has_begun = False
        self.words = ""  # The words of a refusal, in lower case.

    async def stream(self, timeouts: Timeouts) -> AsyncGenerator[Delta, None]:
        try:
            async with AsyncExitStack() as stack:
                deltas = await stack.enter_async_context(aclosing(self._deltas(stack, timeouts)))
                async for delta in deltas:
                    yield delta
        except TimeoutError:
            yield failed(self._provider, ModelError.TIMEOUT, self._waited(timeouts))
        except FAULTS as error:
            unmet = tell(self._provider, error, self._key)
            self.words = unmet.words
            yield unmet.failed

    async def _deltas(self, stack: AsyncExitStack, timeouts: Timeouts) -> AsyncGenerator[Delta, None]:
        until_s = _now_s() + timeouts.first_byte_s
        async with asyncio.timeout_at(until_s):
            stream = await stack.enter_async_context(self._request())
        stack.push_async_callback(_stop, stream)
        events = aiter(stream)
        while (event := await _next(events, until_s)) is not None:
            self.has_begun = True
            if delta := _read(event):
                yield delta
            until_s = _now_s() + timeouts.idle_s
        for delta in self._ending(stream):
            yield delta

    def _request(self) -> AbstractAsyncContextManager[StreamedResponse]:
        draft, model = self._draft, self._model
        return model_request_stream(
            model,
            make_messages(draft, model),
            model_settings=make_settings(draft, model),
            model_request_parameters=make_parameters(draft, model),
        )

    def _ending(self, stream: StreamedResponse) -> Iterator[Delta]:
        """Yields whole calls, and the text of a refusal, as the wire formats do."""
        response = stream.get()
        usage = _usage(stream.usage)
        failure = self._failure(response, usage)
        if failure is not None:
            yield failure
            return
        for index, part in enumerate(response.tool_calls):
            yield CallDelta(index, self._draft.names.tool(part.tool_name), _arguments(part))
        finish = _FINISHES.get(response.finish_reason or "stop", Finish.STOP)
        if refusal := (response.provider_details or {}).get("refusal"):
            finish = Finish.REFUSAL
            yield TextDelta(str(refusal))
        elif finish in (Finish.STOP, Finish.TOOL_CALLS):
            finish = Finish.TOOL_CALLS if response.tool_calls else Finish.STOP
        yield Completed(finish, usage, keep(self._draft.origin, keep_answer(response)))

    def _failure(self, response: ModelResponse, usage: Usage | None) -> Failed | None:
        """Returns the failure of an answer that did not end properly: the vendor says so, or the stream broke off.

        The finish reason comes last in a stream. Some servers never send it; then the count of tokens comes last.
        """
        reason = (response.provider_details or {}).get("finish_reason")
        if response.finish_reason == "error":
            return failed(self._provider, ModelError.OVERLOADED, f"It ended its answer with {reason or 'an error'}.")
        is_vendor = response.provider_name is not None
        if is_vendor and reason is None and (response.finish_reason is None or usage is None):
            closed = Unavailable("closed", "the connection was closed before the answer was complete")
            return broken(self._provider, closed)
        return None

    def _waited(self, timeouts: Timeouts) -> str:
        if self.has_begun:
            return f"Nothing came for {timeouts.idle_s:g} s."
        return f"No token within {timeouts.first_byte_s:g} s."


def _read(event: ModelResponseStreamEvent) -> Delta | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return TextDelta(text) if text else None
        case PartStartEvent(part=ThinkingPart(content=thought)):
            return ReasoningDelta(thought) if thought else None
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str() as thought)):
            return ReasoningDelta(thought) if thought else None
        case _:
            return None


def _arguments(part: ToolCallPart) -> str:
    """Returns arguments as the model wrote them, if it wrote text; unparsable ones are refused with that text."""
    return part.args if isinstance(part.args, str) else msgspec.json.encode(part.args or {}).decode()


def _usage(usage: RequestUsage) -> Usage | None:
    if usage.unmeasured_requests or not usage.has_values():
        return None
    counts = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        reasoning_tokens=usage.output_reasoning_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return believe(counts)


async def _next(events: AsyncIterator[ModelResponseStreamEvent], until_s: float) -> ModelResponseStreamEvent | None:
    async with asyncio.timeout_at(until_s):
        return await anext(events, None)


async def _stop(stream: StreamedResponse) -> None:
    """Ends the vendor's side of a stream that was not read to its end; a finished stream is not affected."""
    with suppress(NotImplementedError, *FAULTS):
        await stream.cancel()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
