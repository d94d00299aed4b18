"""What goes wrong between us and a provider: every fault becomes one last delta that says what to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from palyra.adapters.net.client import HttpClient, Outgoing, Timeouts
from palyra.adapters.providers.anthropic_messages import MessagesFormat
from palyra.adapters.providers.attempts import RetryPace, next_wait_s
from palyra.adapters.providers.exchange import ProviderEndpoint
from palyra.adapters.providers.failures import read_refusal, refused, retry_after_s
from palyra.adapters.providers.openai_chat import ChatFormat, OpenAiChat
from palyra.adapters.providers.openai_responses import ResponsesFormat
from palyra.core.context.messages import UserMessage
from palyra.core.errors import NotFound
from palyra.core.events.model import Finish, ModelError
from palyra.ports.provider import Completed, Failed, TextDelta
from tests.support.provider_answers import ADAPTERS, KEY, Told, ask, chat, half_hello, hello, make, request
from tests.support.stand_in_provider import Played, StandInProvider, events, refusal
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
HASTY = Timeouts(connect_s=WAIT_S, first_byte_s=0.05, idle_s=0.05)
KINDS = pytest.mark.parametrize("kind", sorted(ADAPTERS))
ASKED = request(UserMessage("Hi."))


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(body_bytes_max=4 * 1024 * 1024)
    yield client
    await client.close()


async def play(kind: str, client: HttpClient, *answers: Played, timeouts: Timeouts | None = None) -> tuple[Told, int]:
    """What came of it, and how often was asked."""
    async with StandInProvider(*answers) as server:
        told = await ask(
            make(kind, server.url, client, timeouts or Timeouts(first_byte_s=WAIT_S, idle_s=WAIT_S)), ASKED
        )
        assert KEY not in repr(told)
        return told, len(server.asked)


def code_of(told: Told) -> ModelError:
    assert isinstance(told.last, Failed)
    assert told.last.message.startswith("standin ")
    return told.last.code


@KINDS
async def test_a_refused_connection_is_a_fault_of_the_network(kind: str, client: HttpClient) -> None:
    async with StandInProvider() as server:
        url = server.url
    told = await ask(make(kind, url, client), ASKED)
    assert code_of(told) is ModelError.NETWORK


@KINDS
async def test_no_headers_in_time_is_a_timeout_and_is_not_tried_again(kind: str, client: HttpClient) -> None:
    timeouts = Timeouts(connect_s=0.05, first_byte_s=0.05, idle_s=WAIT_S)
    told, asked = await play(kind, client, Played(is_silent=True), timeouts=timeouts)
    assert (code_of(told), asked <= 1) == (ModelError.TIMEOUT, True)


@KINDS
async def test_pings_do_not_count_as_a_first_token(kind: str, client: HttpClient) -> None:
    ping = Played(body=b": ping\n\n", then="endless")
    told, _ = await play(kind, client, ping, timeouts=HASTY)
    assert code_of(told) is ModelError.TIMEOUT


@KINDS
async def test_a_stall_before_the_first_token_is_a_timeout(kind: str, client: HttpClient) -> None:
    told, asked = await play(kind, client, Played(body=b": ping\n\n", then="stall"), timeouts=HASTY)
    # On a busy machine the time may be up before the server has read the request.
    assert (code_of(told), asked <= 1) == (ModelError.TIMEOUT, True)


@KINDS
async def test_a_stall_in_the_middle_keeps_what_came(kind: str, client: HttpClient) -> None:
    timeouts = Timeouts(first_byte_s=WAIT_S, idle_s=0.05)
    told, asked = await play(kind, client, Played(body=half_hello(kind), then="stall"), timeouts=timeouts)
    assert (told.text, code_of(told), asked) == ("Hel", ModelError.TIMEOUT, 1)


@KINDS
@pytest.mark.parametrize("then", ["cut", "end"])
async def test_a_stream_closed_in_the_middle_failed_and_is_not_tried_again(
    kind: str, then: str, client: HttpClient
) -> None:
    told, asked = await play(kind, client, Played(body=half_hello(kind), then=then))
    assert (told.text, code_of(told), asked) == ("Hel", ModelError.NETWORK, 1)


@KINDS
async def test_a_stream_closed_before_its_first_token_is_tried_again(kind: str, client: HttpClient) -> None:
    told, asked = await play(kind, client, Played(body=b": ping\n\n", then="cut"), Played(body=hello(kind)))
    assert (told.text, asked) == ("Hello.", 2)


@KINDS
async def test_garbage_instead_of_http_is_no_answer(kind: str, client: HttpClient) -> None:
    told, _ = await play(kind, client, Played(raw=b"\x00\xff\x13garbage\r\n\r\n", then="cut"))
    assert code_of(told) in (ModelError.PROTOCOL, ModelError.NETWORK)


@KINDS
@pytest.mark.parametrize("body", [b"data: {half\n\n", b"data: \xff\xfe\n\n", b"data: [1,2]\n\n"])
async def test_garbage_in_a_stream_is_no_answer(kind: str, body: bytes, client: HttpClient) -> None:
    told, asked = await play(kind, client, Played(body=body))
    assert (code_of(told), asked) == (ModelError.PROTOCOL, 1)


@KINDS
async def test_words_that_came_with_garbage_are_kept(kind: str, client: HttpClient) -> None:
    """They came in one piece with it. Without them the call would have cost nothing, and would be made again."""
    told, asked = await play(kind, client, Played(body=half_hello(kind) + b"data: {half\n\n"))
    assert (told.text, code_of(told), asked) == ("Hel", ModelError.PROTOCOL, 1)
    told, asked = await play(kind, client, Played(body=hello(kind) + b"data: {half\n\n"))
    assert (isinstance(told.last, Completed), asked) == (True, 1)


@KINDS
async def test_a_web_page_is_no_answer(kind: str, client: HttpClient) -> None:
    page = Played(body=b"<html><body>Welcome</body></html>", content_type="text/html")
    told, _ = await play(kind, client, page)
    assert code_of(told) is ModelError.PROTOCOL
    told, _ = await play(kind, client, Played(body=page.body, content_type="text/html", status=502))
    assert code_of(told) is ModelError.OVERLOADED


@KINDS
async def test_an_empty_body_is_no_answer(kind: str, client: HttpClient) -> None:
    told, asked = await play(kind, client, Played())
    assert (code_of(told), asked) == (ModelError.NETWORK, 3)
    told, _ = await play(kind, client, Played(status=400))
    assert code_of(told) is ModelError.BAD_REQUEST


@KINDS
async def test_an_endless_body_is_cut_off(kind: str, client: HttpClient) -> None:
    told, _ = await play(kind, client, Played(then="endless"))
    assert code_of(told) is ModelError.PROTOCOL
    told, _ = await play(kind, client, Played(body=half_hello(kind), then="endless"))
    assert code_of(told) is ModelError.PROTOCOL
    told, _ = await play(kind, client, Played(then="endless", status=400, content_type="application/json"))
    assert code_of(told) is ModelError.BAD_REQUEST


@KINDS
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_busy_provider_is_asked_again(kind: str, status: int, client: HttpClient) -> None:
    told, asked = await play(kind, client, refusal(status, "Busy", {"Retry-After": "0.01"}), Played(body=hello(kind)))
    assert (told.text, told.last, asked) == ("Hello.", told.last, 2)
    assert isinstance(told.last, Completed)


@KINDS
async def test_attempts_are_bounded_and_tell_when_to_come_back(kind: str, client: HttpClient) -> None:
    told, asked = await play(kind, client, refusal(529, "Overloaded", {"retry-after-ms": "2"}))
    assert (code_of(told), asked) == (ModelError.OVERLOADED, 3)
    assert isinstance(told.last, Failed)
    assert told.last.retry_after_s == 0.002


@KINDS
async def test_a_wait_that_is_too_long_is_left_to_the_route(kind: str, client: HttpClient) -> None:
    told, asked = await play(kind, client, refusal(429, "Later", {"Retry-After": "3600"}))
    assert (code_of(told), asked) == (ModelError.RATE, 1)
    assert isinstance(told.last, Failed)
    assert told.last.retry_after_s == 3600


@KINDS
@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (401, f"Incorrect API key provided: {KEY}", ModelError.AUTH),
        (403, f"The key {KEY} may not use this model", ModelError.AUTH),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ModelError.CONTEXT_LENGTH),
        (400, "Your credit balance is too low", ModelError.QUOTA),
        (400, f"Something else about {KEY}", ModelError.BAD_REQUEST),
        (404, "model: none", ModelError.BAD_REQUEST),
        (307, "Elsewhere", ModelError.PROTOCOL),
    ],
)
async def test_a_refusal_has_its_class_is_made_once_and_never_shows_the_key(
    kind: str, status: int, message: str, code: ModelError, client: HttpClient
) -> None:
    told, asked = await play(kind, client, refusal(status, message, {"Location": "http://127.0.0.1:1/"}))
    assert (code_of(told), asked) == (code, 1)


@KINDS
async def test_an_error_inside_a_stream_ends_it(kind: str, client: HttpClient) -> None:
    error = events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    told, asked = await play(kind, client, Played(body=half_hello(kind) + error))
    assert (told.text, code_of(told), asked) == ("Hel", ModelError.OVERLOADED, 1)
    told, asked = await play(kind, client, Played(body=error), Played(body=hello(kind)))
    assert (told.text, asked) == ("Hello.", 2)


async def test_an_answer_that_said_everything_is_whole_though_its_end_is_missing(client: HttpClient) -> None:
    body = chat({"content": "All."}, finish="stop").replace(b"data: [DONE]\n\n", b"")
    for then in ("end", "cut", "stall"):
        timeouts = Timeouts(first_byte_s=WAIT_S, idle_s=0.05)
        told, _ = await play("openai-chat", client, Played(body=body, then=then), timeouts=timeouts)
        assert (told.text, told.last) == ("All.", Completed(Finish.STOP))


@KINDS
async def test_closing_the_stream_ends_the_call(kind: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=half_hello(kind), then="stall")) as server:
        async with aclosing(make(kind, server.url, client).stream(ASKED)) as deltas:
            assert await anext(deltas) == TextDelta("Hel")
        told = await ask(make(kind, server.url, client, HASTY), ASKED)
        assert code_of(told) is ModelError.TIMEOUT
        assert server.connection_count == 2


@KINDS
async def test_a_connection_is_used_again(kind: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=hello(kind))) as server:
        provider = make(kind, server.url, client)
        for _ in range(3):
            assert (await ask(provider, ASKED)).text == "Hello."
        assert server.connection_count == 1


async def test_a_key_that_no_header_takes_is_refused_here(client: HttpClient) -> None:
    provider = OpenAiChat(ProviderEndpoint(name="standin", base_url="http://127.0.0.1:1"), lambda: "sk-a\nb", client)
    told = await ask(provider, ASKED)
    assert code_of(told) is ModelError.AUTH
    assert "sk-a" not in repr(told)


async def test_a_key_that_cannot_be_read_is_a_failed_call(client: HttpClient) -> None:
    def unreadable() -> str:
        raise NotFound("secret_missing", "the variable MY_KEY is not set")

    provider = OpenAiChat(ProviderEndpoint(name="standin", base_url="http://127.0.0.1:1"), unreadable, client)
    told = await ask(provider, ASKED)
    assert code_of(told) is ModelError.AUTH
    assert "MY_KEY" in repr(told)


@KINDS
async def test_the_key_is_in_its_header_and_nowhere_else(kind: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=hello(kind))) as server:
        provider = make(kind, server.url, client)
        await ask(provider, ASKED)
        asked = server.asked[0]
    held = {name for name, value in asked.headers.items() if KEY in value}
    assert held == {"authorization"} | ({"x-api-key"} if kind == "anthropic-messages" else set())
    assert KEY not in repr(asked.body) + repr(provider) + repr(vars(provider))
    outgoing = Outgoing(url="http://x", headers={"Authorization": KEY}, body=b"")
    assert KEY not in repr(outgoing)


def test_a_vendor_is_sent_the_key_in_the_one_header_it_documents() -> None:
    assert MessagesFormat(None).headers(KEY) == {"anthropic-version": "2023-06-01", "x-api-key": KEY}
    assert ChatFormat(None).headers(KEY) == ResponsesFormat().headers(KEY) == {"Authorization": f"Bearer {KEY}"}
    assert KEY not in str([form.headers(None) for form in (MessagesFormat(None), ChatFormat(None), ResponsesFormat())])


@KINDS
async def test_cancelling_who_reads_is_not_swallowed(kind: str, client: HttpClient) -> None:
    async with StandInProvider(Played(is_silent=True)) as server:
        task = asyncio.create_task(ask(make(kind, server.url, client), ASKED))
        await until(lambda: server.asked, pause_s=0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_waits_double_are_bounded_and_keep_what_was_asked() -> None:
    pace = RetryPace(retries=5, first_s=1, most_s=3, retry_after_max_s=10)
    busy = Failed(ModelError.OVERLOADED, "")
    assert [next_wait_s(pace, busy, count, 0) for count in range(1, 7)] == [1, 2, 3, 3, 3, None]
    assert next_wait_s(pace, busy, 1, 1) == 0.5
    assert next_wait_s(pace, Failed(ModelError.RATE, "", 7.0), 1, 0) == 7.0
    assert next_wait_s(pace, Failed(ModelError.RATE, "", 70.0), 1, 0) is None
    refused_codes = set(ModelError) - {ModelError.RATE, ModelError.OVERLOADED, ModelError.NETWORK}
    assert all(next_wait_s(pace, Failed(code, ""), 1, 0) is None for code in refused_codes)


def test_retry_after_is_read_in_all_its_forms() -> None:
    assert retry_after_s({"retry-after": "3"}) == 3
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert [
        retry_after_s(headers)
        for headers in ({}, {"retry-after": "soon"}, {"retry-after": "-1"}, {"retry-after": "nan"})
    ] == [None] * 4


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, '{"error":{"message":"Rate limit reached on tokens per min","code":"rate_limit_exceeded"}}', "rate"),
        (429, '{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}', "quota"),
        (402, '{"error":{"message":"Insufficient Balance"}}', "quota"),
        (400, '{"error":{"message":"x","code":"context_length_exceeded"}}', "context_length"),
        (400, '{"error":{"message":"input length and `max_tokens` exceed context limit"}}', "context_length"),
        (400, '{"error":{"type":"exceed_context_size_error","message":"increase it"}}', "context_length"),
        (413, '{"error":{"type":"request_too_large","message":"x"}}', "context_length"),
        (400, '{"error":{"message":"max_tokens is too large: 1. At most 16384 completion tokens"}}', "bad_request"),
        (400, '{"error":{"code":"content_filter","message":"x"}}', "content_filter"),
        (403, '{"error":{"code":403,"message":"Your input was flagged by moderation"}}', "content_filter"),
        (400, '[{"error":{"code":400,"message":"API key not valid."}}]', "auth"),
        (404, '{"error":"model \'x\' not found"}', "bad_request"),
        (422, '{"detail":[{"msg":"Extra inputs are not permitted"}]}', "bad_request"),
        (408, "", "timeout"),
        (500, '{"error":{"message":"prompt is too long to handle"}}', "overloaded"),
        (None, '{"error":{"type":"overloaded_error","message":"Overloaded"}}', "overloaded"),
        (None, '{"error":{"type":"api_error","message":"Internal server error"}}', "overloaded"),
        (None, '{"error":{"code":429,"message":"slow down"}}', "rate"),
        (None, '{"code":"server_error","message":"x"}', "overloaded"),
        (None, '{"error":{"type":"invalid_request_error","message":"x"}}', "bad_request"),
    ],
)
def test_words_and_status_give_the_class(status: int | None, body: str, code: str) -> None:
    assert refused("p", read_refusal(body.encode()), status).code is ModelError(code)
