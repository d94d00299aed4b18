"""The first start: variables come first, then a server on this machine, then the guide, and the words tell which and why."""

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, get_args

import pytest
from anthropic.types import ModelParam
from genai_prices import data_snapshot
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types import ChatModel

from palyra.adapters.net.client import HttpClient
from palyra.app.default_models import (
    LIST_BYTES_MAX,
    MODELS_MAX,
    VENDORS,
    DefaultModels,
    DetectionTimeouts,
    ListedModel,
    ModelList,
    chat_models,
    name_models,
    read_list,
    resolve_models,
)
from palyra.config import Config, read_config
from palyra.config.forms import parse_model_name, parse_target
from palyra.config.records import ServerConfig
from tests.support.stand_in_provider import Played, StandInProvider
from tests.support.waiting import until

KEY = "sk-test-0123456789abcdef"
PATIENT = DetectionTimeouts(local_s=10.0, remote_s=10.0)
HASTY = DetectionTimeouts(local_s=0.2, remote_s=0.2)
NOTHING = Played(is_silent=True)


def listed(*ids: str, **more: Any) -> Played:
    models = [{"id": each, "object": "model", "created": 1, "owned_by": "library"} for each in ids]
    body = json.dumps({"object": "list", "data": models, **more}).encode()
    return Played(body=body, content_type="application/json")


def plain(text: str, status: int = 200) -> Played:
    return Played(body=text.encode(), status=status, content_type="application/json")


class Street:
    """Servers on this machine, in order, and a start beside them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.servers: list[StandInProvider] = []

    async def build(self, *answers: Played) -> StandInProvider:
        """Another house, which answers whoever rings."""
        server = await self._stack.enter_async_context(StandInProvider(*answers))
        self.servers.append(server)
        return server

    async def start(self, text: str = "", timeouts: DetectionTimeouts = PATIENT, **environ: Any) -> DefaultModels:
        config = read_config(text, environ, "palyra.toml")
        assert isinstance(config, Config), config
        detect = tuple(parse_target(server.url.removeprefix("http://")) for server in self.servers)
        client = HttpClient()
        try:
            return await resolve_models(replace(config, server=ServerConfig(detect=detect)), client, timeouts)
        finally:
            await client.close()

    @property
    def rings(self) -> list[int]:
        return [server.connection_count for server in self.servers]


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    async with AsyncExitStack() as stack:
        yield Street(stack)


def told(choice: DefaultModels) -> tuple[str, str, str | None, str, list[str]]:
    """Name, kind, address and key of the provider, and its models."""
    (provider,) = choice.config.providers
    assert {model.provider for model in choice.config.models} == {provider.name}
    ids = [str(model.id) for model in choice.config.models]
    return provider.name, provider.kind, provider.base_url, str(provider.api_key), ids


async def test_nothing_is_looked_for_where_the_file_names_a_provider(street: Street) -> None:
    await street.build(listed("llama3"))
    choice = await street.start('[[provider]]\nname = "p"\nkind = "demo"\n', OPENAI_API_KEY=KEY)
    assert ([provider.name for provider in choice.config.providers], choice.config.models) == (["p"], ())
    assert (choice.words, street.rings) == ("", [0])


@pytest.mark.parametrize(
    ("kind", "environ"),
    [
        ("anthropic-messages", {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}),
        ("openai-chat", {"OPENAI_API_KEY": KEY}),
    ],
)
async def test_a_key_chooses_its_vendor_and_asks_nobody(street: Street, kind: str, environ: dict[str, Any]) -> None:
    await street.build(listed("llama3"))
    choice = await street.start(**environ)
    vendor = VENDORS[kind]
    assert told(choice) == (vendor.name, kind, None, f"env:{vendor.prefix}_API_KEY", [vendor.model])
    assert choice.words == (
        f"{vendor.prefix}_API_KEY is set, so {vendor.model} at {vendor.host} answers; {vendor.prefix}_MODEL names another"
    )
    assert (choice.config.models[0].vision, street.rings) == (True, [0])


async def test_a_variable_names_another_model(street: Street) -> None:
    choice = await street.start(ANTHROPIC_API_KEY=KEY, ANTHROPIC_MODEL="claude-opus-5-5")
    assert told(choice)[-1] == ["claude-opus-5-5"]
    assert "so claude-opus-5-5 at api.anthropic.com answers" in choice.words


async def test_the_address_of_the_vendor_itself_is_not_asked_for_a_list(street: Street) -> None:
    choice = await street.start(OPENAI_API_KEY=KEY, OPENAI_BASE_URL="https://api.openai.com/v1")
    assert told(choice)[2:] == ("https://api.openai.com/v1", "env:OPENAI_API_KEY", [VENDORS["openai-chat"].model])


@pytest.mark.parametrize(
    ("vendor", "kind", "header"),
    [("OPENAI", "openai-chat", "authorization"), ("ANTHROPIC", "anthropic-messages", "x-api-key")],
)
async def test_a_key_and_an_address_choose_the_first_models_of_its_list(
    street: Street, monkeypatch: pytest.MonkeyPatch, vendor: str, kind: str, header: str
) -> None:
    server = StandInProvider(listed("org/large", "small"))
    monkeypatch.setenv(f"{vendor}_API_KEY", KEY)
    async with server:
        environ: dict[str, Any] = {f"{vendor}_API_KEY": KEY, f"{vendor}_BASE_URL": f"{server.url}/v1"}
        choice = await street.start(**environ)
        assert told(choice)[1:] == (kind, f"{server.url}/v1", f"env:{vendor}_API_KEY", ["org/large", "small"])
    (asked,) = server.asked
    assert (asked.path, asked.headers[header].removeprefix("Bearer ")) == ("/v1/models", KEY)
    assert f"{vendor}_BASE_URL is set, so org/large (of 2 listed) at 127.0.0.1:" in choice.words
    assert KEY not in choice.words


async def test_an_address_alone_is_asked_without_a_key(street: Street) -> None:
    async with StandInProvider(listed("small")) as server:
        choice = await street.start(OPENAI_BASE_URL=server.url)
        assert told(choice) == ("openai", "openai-chat", server.url, "None", ["small"])
    assert "authorization" not in server.asked[0].headers


async def test_an_address_with_a_model_is_not_asked(street: Street) -> None:
    async with StandInProvider(listed("small")) as server:
        choice = await street.start(OPENAI_BASE_URL=server.url, OPENAI_MODEL="other")
        assert (told(choice)[-1], server.connection_count) == (["other"], 0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (plain("no", 401), "HTTP 401"),
        (plain("<html>"), "what it says is no list of models"),
        (listed("text-embedding-3-small"), "there is no chat model in it"),
        (NOTHING, "nothing within 0.2 s"),
    ],
    ids=["refused", "garbage", "only_embeddings", "hanging"],
)
async def test_an_address_without_a_list_keeps_the_vendors_model_and_says_so(
    street: Street, answer: Played, why: str
) -> None:
    timeouts = HASTY if answer.is_silent else PATIENT
    async with StandInProvider(answer) as server:
        choice = await street.start(timeouts=timeouts, OPENAI_BASE_URL=server.url)
    assert told(choice)[-1] == [VENDORS["openai-chat"].model]
    assert f"it gave no list of its models ({why}): name one with OPENAI_MODEL" in choice.words


async def test_of_an_address_only_host_and_port_are_repeated(street: Street) -> None:
    url = "http://sk-secret-name@127.0.0.1:9/path-secret?api-key=secret"
    choice = await street.start(OPENAI_BASE_URL=url, OPENAI_MODEL="m")
    assert "so m at 127.0.0.1:9 answers" in choice.words
    assert "secret" not in choice.words


async def test_a_server_on_this_machine_is_found(street: Street) -> None:
    server = await street.build(listed("nomic-embed-text:latest", "qwen3:8b", "llama3.2:latest"))
    choice = await street.start()
    assert told(choice) == ("local", "openai-chat", f"{server.url}/v1", "None", ["qwen3:8b", "llama3.2:latest"])
    assert [asked.path for asked in server.asked] == ["/v1/models"]
    assert f"so qwen3:8b (of 2 listed) at {server.url.removeprefix('http://')} answers" in choice.words


async def test_only_the_first_model_answers_unless_another_is_asked_for(street: Street) -> None:
    """Others of the list are there by name, but nothing goes over to one that nobody chose."""
    await street.build(listed("a", "b"))
    config = (await street.start('[[agent]]\nname = "mine"\n')).config
    assert [(route.name, route.models) for route in config.routes] == [("default", ("a",))]
    assert [(agent.name, agent.route) for agent in config.agents] == [("mine", "default")]
    assert [agent.route for agent in (await street.start()).config.agents] == ["default"]


GARBAGE = {
    "not_found": plain("no", 404),
    "error": plain('{"object":"list","data":[{"id":"m"}]}', 500),
    "redirect": Played(status=302, headers={"Location": "http://127.0.0.1:9/"}),
    "page": Played(body=b"<html>", content_type="text/html"),
    "no_json": plain("{"),
    "other_json": plain('{"models":[{"name":"m"}]}'),
    "no_mark": plain('{"data":[{"id":"m"}]}'),
    "ids_of_numbers": plain('{"object":"list","data":[{"id":1}]}'),
    "no_utf8": Played(body=b'{"object":"list","data":[{"id":"\xff"}]}'),
    "deep": plain("[" * 100_000),
    "no_http": Played(raw=b"220 mail.example.com ESMTP\r\n", then="cut"),
    "cut": Played(body=b'{"object":"list","data":[{"id":"m"}', then="cut"),
    "nothing_there": listed(),
    "null": plain('{"object":"list","data":null}'),
    "no_chat": listed("nomic-embed-text", "BAAI/bge-m3", "all-minilm:latest", "dall-e-3", "tts-1", "gpt-realtime"),
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_list_of_models_is_no_server(street: Street, answer: Played) -> None:
    await street.build(answer)
    choice = await street.start()
    assert told(choice) == ("demo", "demo", None, "None", ["demo"])
    assert street.rings == [1]


async def test_a_server_without_models_is_named(street: Street) -> None:
    server = await street.build(plain('{"object":"list","data":null}'))
    words = (await street.start()).words
    assert f"the server at {server.url.removeprefix('http://')} has no chat model yet" in words


@pytest.mark.parametrize(("spaces_count", "name"), [(LIST_BYTES_MAX - 200, "local"), (LIST_BYTES_MAX, "demo")])
async def test_no_more_is_read_than_a_list_can_be(street: Street, spaces_count: int, name: str) -> None:
    answer = listed("m")
    await street.build(dataclasses.replace(answer, body=b" " * spaces_count + answer.body))
    assert told(await street.start())[0] == name


async def test_a_list_without_end_is_left(street: Street) -> None:
    await street.build(Played(body=b" " * 65536, then="endless"))
    assert told(await street.start())[0] == "demo"


@pytest.mark.parametrize("answer", [NOTHING, Played(body=b'{"object"', then="stall")], ids=["silent", "stalled"])
async def test_a_hanging_server_is_not_waited_for(street: Street, answer: Played) -> None:
    await street.build(answer)
    assert told(await street.start(timeouts=HASTY))[0] == "demo"
    assert street.rings == [1]


async def test_of_several_servers_the_first_in_order_is_taken_and_the_others_are_named(street: Street) -> None:
    await street.build(plain("no", 404))
    second, third = await street.build(listed("b")), await street.build(listed("c"))
    choice = await street.start()
    assert told(choice)[2:] == (f"{second.url}/v1", "None", ["b"])
    assert f"; {third.url.removeprefix('http://')} answers too" in choice.words
    assert street.rings == [1, 1, 1]


async def test_servers_are_asked_all_at_once(street: Street) -> None:
    """Each of these answers only once the other one was asked too."""
    first, second = await street.build(listed("a")), await street.build(listed("b"))
    for one, other in ((first, second), (second, first)):
        _answer_once_rung(one, other)
    assert told(await street.start())[-1] == ["a"]


def _answer_once_rung(server: StandInProvider, other: StandInProvider) -> None:
    play = server._play

    async def wait_and_play(*arguments: Any) -> None:
        await until(lambda: other.asked, pause_s=0)
        await play(*arguments)

    server._play = wait_and_play  # type: ignore[method-assign, assignment]


async def test_with_nothing_at_all_the_guide_answers_and_says_what_to_do(street: Street) -> None:
    choice = await street.start()
    assert told(choice) == ("demo", "demo", None, "None", ["demo"])
    assert "the demo guide answers, which is no language model" in choice.words
    assert "set ANTHROPIC_API_KEY or OPENAI_API_KEY" in choice.words


def test_servers_are_looked_for_on_this_machine_alone() -> None:
    assert all(address.is_loopback for address in ServerConfig().detect)
    problems = read_config('[server]\ndetect = ["192.168.1.2:11434"]\n', {}, "f")
    assert isinstance(problems, tuple)
    assert "must be an address of this machine" in str(problems[0])
    assert read_config("", {"PALYRA_SERVER__DETECT": "[]"}, "f").server.detect == ()  # type: ignore[union-attr]


def test_the_vendors_models_exist_and_have_a_price() -> None:
    priced = {model.id for provider in data_snapshot.get_snapshot().providers for model in provider.models}
    assert {vendor.model for vendor in VENDORS.values()} <= priced
    assert VENDORS["openai-chat"].model in get_args(ChatModel)
    assert VENDORS["anthropic-messages"].model in get_args(get_args(ModelParam)[0])


keys = st.sampled_from(["object", "data", "id"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_list_or_none(body: bytes) -> None:
    found = read_list(body)
    assert found is None or isinstance(found, ModelList)


@given(values)
def test_any_json_is_a_list_or_none(value: object) -> None:
    found = read_list(json.dumps(value).encode())
    assert found is None or all(isinstance(model.id, str) for model in found.data or ())


@given(st.lists(st.text(max_size=300) | st.from_regex(r"[/a-zA-Z0-9._:@ -]{1,120}", fullmatch=True)))
def test_every_id_gets_a_name_of_its_own_that_a_file_could_hold(ids: list[str]) -> None:
    chosen = chat_models(ModelList(tuple(ListedModel(each) for each in ids)))
    named = name_models(chosen)
    assert tuple(named.values()) == chosen
    assert len(chosen) == len(set(chosen)) <= MODELS_MAX
    assert [parse_model_name(name) for name in named] == list(named)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["qwen3:8b", "org/model-4b"], ["qwen3:8b", "org/model-4b"]),
        (["/home/me/models/llama 3 (8b).gguf"], ["llama-3-8b-.gguf"]),
        (["a b", "a@b", "a-b"], ["a-b", "a-b-2", "a-b-3"]),
        (["日本"], ["model"]),
    ],
)
def test_a_name_is_the_id_or_what_it_can_keep_of_it(ids: list[str], names: list[str]) -> None:
    assert list(name_models(ids)) == names
