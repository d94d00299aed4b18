"""The provider for every other vendor, through pydantic-ai: keys, models that are built once, attempts.

Does not own: one call (pydantic_ai_call).
The first call imports pydantic-ai and a vendor's own package in a thread. Together they take seconds, and neither the
daemon's start nor any stream waits for them.
"""

import asyncio
import importlib
import importlib.util
import random
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from palyra.adapters.extras import install_command
from palyra.adapters.providers.attempts import next_wait_s
from palyra.adapters.providers.exchange import BodyDraft, KeySource, ProviderEndpoint, Rejected, WireModel
from palyra.adapters.providers.failures import failed
from palyra.adapters.providers.image_parts import BLIND, REFUSED, is_about_images, without_images
from palyra.adapters.providers.wire_names import names_of
from palyra.core.errors import Invalid, PalyraError
from palyra.core.events.model import ModelError
from palyra.ports.provider import Delta, Failed, ModelRequest

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from palyra.adapters.providers.pydantic_ai_call import VendorCall

INSTALL = f"`{install_command('palyra[vendors]')}`"
_ABOUT_SCHEMA = re.compile(r"schema|response_format|structured|nativeoutput|json mode")
_CALL_MODULE = "palyra.adapters.providers.pydantic_ai_call"

Build = Callable[[str, str | None, str | None], "Model"]


class PydanticAi:
    """A provider. A model's id is `vendor:model`; without a key the vendor's library looks for one in its own ways.

    `build` makes a vendor's model from its id, address and key.
    """

    def __init__(self, endpoint: ProviderEndpoint, key: KeySource, build: Build | None = None) -> None:
        check_installed(endpoint.name)
        check_ids(endpoint)
        self._endpoint = endpoint
        self._key = key
        self._build = build or _build
        self._building = asyncio.Lock()
        self._built: dict[str, tuple[str | None, Model]] = {}
        self._replaced: list[Model] = []
        self._without: dict[str, frozenset[str]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        request = request if self._wire_model(request).takes_images else without_images(request, BLIND)
        made_count = 0
        while True:
            unmet: list[Rejected] = []
            async with aclosing(self._deltas_of(request, unmet)) as deltas:
                async for delta in deltas:
                    yield delta
            if not unmet:
                return
            changed = self._without_refused(request, unmet[0])
            if changed is not None:
                request = changed
                continue
            made_count += 1
            wait_s = next_wait_s(self._endpoint.pace, unmet[0].failed, made_count, random.random())  # noqa: S311 - jitter only
            if wait_s is None:
                yield unmet[0].failed
                return
            await asyncio.sleep(wait_s)

    async def close(self) -> None:
        models = [*self._replaced, *(model for _, model in self._built.values())]
        self._replaced.clear()
        self._built.clear()
        for model in models:
            await model.__aexit__(None, None, None)

    async def _deltas_of(self, request: ModelRequest, unmet: list[Rejected]) -> AsyncGenerator[Delta, None]:
        """Yields the deltas of an attempt that began.

        A failure before the vendor said anything goes to `unmet` instead.
        """
        call = await self._begin(request)
        if isinstance(call, Failed):
            unmet.append(Rejected(call, ""))
            return
        async with aclosing(call.stream(self._endpoint.timeouts)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Failed) and not call.has_begun:
                    unmet.append(Rejected(delta, call.words))
                    return
                yield delta

    async def _begin(self, request: ModelRequest) -> "VendorCall | Failed":
        name = self._endpoint.name
        try:
            key = _checked(self._key())
        except PalyraError as cause:
            return failed(name, ModelError.AUTH, f"{cause.message[:1].upper()}{cause.message[1:]}.")
        await asyncio.to_thread(importlib.import_module, _CALL_MODULE)
        from palyra.adapters.providers.pydantic_ai_call import VendorCall
        from palyra.adapters.providers.pydantic_ai_failures import FAULTS, tell

        draft = self._draft(request)
        try:
            model = await self._model(draft.model_id, key)
        except FAULTS as error:
            return tell(name, error, key).failed
        return VendorCall(model, draft, name, key)

    async def _model(self, model_id: str, key: str | None) -> "Model":
        """Builds a model once, so that its connections are kept.

        A key that was changed outside makes another model; calls of the old one go on.
        """
        async with self._building:
            known = self._built.get(model_id)
            if known is not None and known[0] == key:
                return known[1]
            model = await asyncio.to_thread(self._build, model_id, self._endpoint.base_url, key)
            await model.__aenter__()
            if known is not None:
                self._replaced.append(known[1])
            self._built[model_id] = (key, model)
            return model

    def _wire_model(self, request: ModelRequest) -> WireModel:
        return self._endpoint.models.get(request.model) or WireModel(id=request.model)

    def _draft(self, request: ModelRequest) -> BodyDraft:
        model = self._wire_model(request)
        limits = [limit for limit in (request.max_output_tokens, model.max_output_tokens) if limit is not None]
        return BodyDraft(
            request=request,
            names=names_of(request),
            model_id=model.id,
            origin=f"pydantic-ai/{self._endpoint.name}/{model.id}",
            max_output_tokens=min(limits, default=None),
            tools=request.tools if model.takes_tools else (),
            without=self._without.get(request.model, frozenset()),
        )

    def _without_refused(self, request: ModelRequest, rejected: Rejected) -> ModelRequest | None:
        """Returns the request without what was refused of it, if it can do without that."""
        without = self._without.get(request.model, frozenset())
        is_refused = rejected.failed.code is ModelError.BAD_REQUEST
        has_schema = request.answer_schema is not None and not without
        if is_refused and has_schema and _ABOUT_SCHEMA.search(rejected.words):
            from palyra.adapters.providers.pydantic_ai_messages import ANSWER_SCHEMA

            self._without[request.model] = without | {ANSWER_SCHEMA}
            return request
        if request.images and is_about_images(rejected.failed, rejected.words):
            return without_images(request, REFUSED)
        return None


def check_installed(provider: str) -> None:
    """Raises Invalid if pydantic-ai is not installed; imports nothing."""
    if importlib.util.find_spec("pydantic_ai") is None:
        raise Invalid("extra_missing", f"provider {provider}: other vendors need another package; run {INSTALL}")


def check_ids(endpoint: ProviderEndpoint) -> None:
    for name, model in endpoint.models.items():
        if ":" not in model.id:
            what = f"its id must name the vendor too, such as google:{model.id}"
            raise Invalid("model_id", f"model {name} of provider {endpoint.name}: {what}")


def _build(model_id: str, base_url: str | None, key: str | None) -> "Model":
    from palyra.adapters.providers.pydantic_ai_models import build_model

    return build_model(model_id, base_url, key)


def _checked(key: str | None) -> str | None:
    stripped = (key or "").strip()
    if not stripped.isprintable():
        raise Invalid("key_invalid", "the key holds a line break or another character that no key has")
    return stripped or None
