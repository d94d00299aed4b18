"""Chooses provider and models for a start whose file names none, and says why.

Does not own: routing (core.routing).
A vendor's variables come first, then a model server on this machine, then the demo guide. If the file names a provider,
nothing is searched for. A server's answer is read up to a limit, and only host and port of an address are repeated.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.adapters.providers.anthropic_messages import MessagesFormat
from palyra.adapters.providers.exchange import join_url
from palyra.adapters.providers.openai_chat import ChatFormat
from palyra.config import Config, ListenAddress, ProviderHint
from palyra.config.forms import NAME_LENGTH_MAX, parse_model_name
from palyra.config.records import AgentConfig, ModelConfig, ProviderConfig, RouteConfig
from palyra.core.errors import Invalid, Unavailable

LOCAL_TIMEOUT_S = (
    0.5  # A server on this machine answers in a few milliseconds, or refuses at once; a busy one gets this.
)
REMOTE_TIMEOUT_S = 5.0  # A variable names this address on purpose, so its answer is awaited longer.
LIST_BYTES_MAX = 4 * 1024 * 1024  # The longest lists of public brokers are a quarter of this.
MODELS_MAX = 8  # The first of a list; each can be chosen by name, and the first one answers.
ADDRESSES_MAX = 16
ID_LENGTH_MAX = 200
ROUTE = "default"

_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
_LOCAL_NAMES = {11434: "ollama", 1234: "lm-studio"}
_NO_CHAT = re.compile(
    r"embed|rerank|minilm|whisper|transcri|realtime|speech|dall-e|image|moderation|(?:^|[/_-])(?:bge|e5|gte|tts)-",
    re.IGNORECASE,
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._/:-]+")


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """`prefix` begins the names of the vendor's variables; `model` is used if they name none."""

    name: str
    prefix: str
    host: str
    model: str
    format: type[ChatFormat] | type[MessagesFormat]


VENDORS: Mapping[str, Vendor] = {
    "anthropic-messages": Vendor(
        name="anthropic", prefix="ANTHROPIC", host="api.anthropic.com", model="claude-sonnet-5-5", format=MessagesFormat
    ),
    "openai-chat": Vendor(
        name="openai", prefix="OPENAI", host="api.openai.com", model="gpt-6.1-sol", format=ChatFormat
    ),
}


class DefaultModels(msgspec.Struct, frozen=True):
    """A configuration with models. `words` says which were chosen and why; it is empty if the file names them."""

    config: Config
    words: str = ""


class DetectionTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the start waits for servers."""

    local_s: float = LOCAL_TIMEOUT_S
    remote_s: float = REMOTE_TIMEOUT_S


DETECTION_TIMEOUTS = DetectionTimeouts()


class ServerModels(msgspec.Struct, frozen=True):
    """The chat models that a server offers, or why they are not known."""

    models: tuple[str, ...] = ()
    problem: str = ""


async def choose_models(config: Config) -> DefaultModels:
    """Chooses models at a start. It has its own client: later steps may fail, and nothing must be left open."""
    client = HttpClient()
    try:
        return await resolve_models(config, client)
    finally:
        await client.close()


async def resolve_models(
    config: Config, client: HttpClient, timeouts: DetectionTimeouts = DETECTION_TIMEOUTS
) -> DefaultModels:
    if config.providers:
        return DefaultModels(config)
    if config.provider_hint is not None:
        return await _choose_hinted(config, config.provider_hint, client, timeouts)
    return await _choose_local(config, client, timeouts)


async def _choose_hinted(
    config: Config, hint: ProviderHint, client: HttpClient, timeouts: DetectionTimeouts
) -> DefaultModels:
    vendor = VENDORS[hint.kind]
    is_vendors = hint.base_url is None or urlsplit(hint.base_url).hostname == vendor.host
    provider = ProviderConfig(name=vendor.name, kind=hint.kind, base_url=hint.base_url, api_key=hint.api_key)
    listing = ServerModels()
    if hint.model is None and not is_vendors:
        listing = await _list_hinted(hint, vendor, client, timeouts)
    ids = listing.models or (hint.model or vendor.model,)
    why = f"{vendor.prefix}_{'API_KEY' if hint.base_url is None else 'BASE_URL'} is set"
    place = vendor.host if hint.base_url is None else _place(hint.base_url)
    rest = f"{vendor.prefix}_MODEL names another"
    if listing.problem:
        rest = f"it gave no list of its models ({listing.problem}): name one with {vendor.prefix}_MODEL"
    words = f"{why}, so {_counted(ids)} at {place} answers; {rest}"
    return DefaultModels(_filled(config, provider, ids, takes_images=is_vendors), words)


async def _choose_local(config: Config, client: HttpClient, timeouts: DetectionTimeouts) -> DefaultModels:
    addresses = config.server.detect[:ADDRESSES_MAX]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_list_local(address, client, timeouts.local_s)) for address in addresses]
    listings = list(zip(addresses, (task.result() for task in asked), strict=True))
    serving = [(address, listing.models) for address, listing in listings if listing.models]
    if not serving:
        return _choose_demo(config, [address for address, listing in listings if not listing.problem])
    address, ids = serving[0]
    provider = ProviderConfig(
        name=_LOCAL_NAMES.get(address.port, "local"), kind="openai-chat", base_url=f"http://{address}/v1"
    )
    others = "".join(f"; {other} answers too" for other, _ in serving[1:])
    words = (
        f"no provider is configured and no key is set, but a model server answers on this machine, so {_counted(ids)} at "
        f"{address} answers{others}; a [[provider]] in palyra.toml names another, [server] detect = [] stops looking"
    )
    return DefaultModels(_filled(config, provider, ids, takes_images=False), words)


def _choose_demo(config: Config, empty: Sequence[ListenAddress]) -> DefaultModels:
    without = f"; the server at {empty[0]} has no chat model yet" if empty else ""
    words = (
        "no provider is configured, no key is set and no model server answers on this machine, so the demo guide "
        f"answers, which is no language model{without}; set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a [[provider]] "
        "in palyra.toml"
    )
    return DefaultModels(
        _filled(config, ProviderConfig(name="demo", kind="demo"), ("demo",), takes_images=False), words
    )


async def _list_hinted(
    hint: ProviderHint, vendor: Vendor, client: HttpClient, timeouts: DetectionTimeouts
) -> ServerModels:
    assert hint.base_url is not None
    key = os.environ.get(hint.api_key.name, "").strip() if hint.api_key is not None else ""
    headers = {**_HEADERS, **vendor.format(hint.base_url).headers(key or None)}
    found = await _ask(hint.base_url, headers, client, timeouts.remote_s)
    if isinstance(found, str):
        return ServerModels(problem=found)
    models = chat_models(found)
    return ServerModels(models) if models else ServerModels(problem="there is no chat model in it")


async def _list_local(address: ListenAddress, client: HttpClient, timeout_s: float) -> ServerModels:
    """Accepts only a list in OpenAI's form, because many things listen on these ports."""
    found = await _ask(f"http://{address}", _HEADERS, client, timeout_s)
    if isinstance(found, str):
        return ServerModels(problem=found)
    if found.object != "list":
        return ServerModels(problem="it is no list of models")
    return ServerModels(chat_models(found))


class ListedModel(msgspec.Struct, frozen=True):
    id: str


class ModelList(msgspec.Struct, frozen=True):
    """A list in the form of OpenAI and Anthropic. A server without models may say null."""

    data: tuple[ListedModel, ...] | None
    object: str = ""


async def _ask(base_url: str, headers: Mapping[str, str], client: HttpClient, timeout_s: float) -> ModelList | str:
    """Returns the list, or why there is none, in words of ours."""
    outgoing = Outgoing(url=join_url(base_url, "/v1", "/models"), headers=headers)
    try:
        async with asyncio.timeout(timeout_s), client.get(outgoing) as reply:
            if reply.status != 200:
                return f"HTTP {reply.status}"
            body = await reply.read_start(timeout_s, LIST_BYTES_MAX)
    except TimeoutError:
        return f"nothing within {timeout_s:g} s"
    except Unavailable as fault:
        return fault.message
    return read_list(body) or "what it says is no list of models"


def read_list(body: bytes) -> ModelList | None:
    try:
        return msgspec.json.decode(body, type=ModelList)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def chat_models(listed: ModelList) -> tuple[str, ...]:
    """Returns the first ids, without models that hold no conversation and without texts that are no id."""
    ids = dict.fromkeys(model.id for model in listed.data or () if _is_chat_id(model.id))
    return tuple(ids)[:MODELS_MAX]


def _is_chat_id(text: str) -> bool:
    return 0 < len(text) <= ID_LENGTH_MAX and text.isprintable() and not text.isspace() and not _NO_CHAT.search(text)


def name_models(ids: Iterable[str]) -> dict[str, str]:
    """Returns ids by names that settings and routes may use.

    A name is the id itself if possible, else what fits of it.
    """
    named: dict[str, str] = {}
    for model_id in ids:
        name = _as_name(model_id)
        number = 2
        while name in named:
            name = f"{_as_name(model_id)[: NAME_LENGTH_MAX - 4]}-{number}"
            number += 1
        named[name] = model_id
    return named


def _as_name(model_id: str) -> str:
    try:
        return parse_model_name(model_id)
    except Invalid:
        last = model_id.rstrip("/").rpartition("/")[2]
        kept = _NOT_IN_NAMES.sub("-", last).strip("._/:-")
        return kept[-NAME_LENGTH_MAX:].lstrip("._/:-") or "model"


def _filled(config: Config, provider: ProviderConfig, ids: Sequence[str], takes_images: bool) -> Config:
    """Fills in the models as if the file named them.

    Only the first is the route: fallbacks are the reader's decision.
    """
    named = name_models(ids)
    models = tuple(
        ModelConfig(name=name, provider=provider.name, id=model_id, vision=takes_images)
        for name, model_id in named.items()
    )
    route = RouteConfig(name=ROUTE, models=(models[0].name,))
    agents = tuple(replace(agent, route=ROUTE) for agent in config.agents) or (AgentConfig(name="main", route=ROUTE),)
    return replace(config, providers=(provider,), models=models, routes=(route,), agents=agents)


def _counted(ids: Sequence[str]) -> str:
    more = f" (of {len(ids)} listed)" if len(ids) > 1 else ""
    return f"{ids[0]}{more}"


def _place(base_url: str) -> str:
    """Returns host and port: the rest of an address may hold a key."""
    parts = urlsplit(base_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port is not None else host
