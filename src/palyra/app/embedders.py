"""Wires the embedder that `memory.embedder` names, and what the watchdog knows of it.

Does not own: any embedder (adapters.embedders).
"""

import asyncio

from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.adapters.embedders.endpoint import EmbeddingModel, EndpointEmbeddings
from palyra.adapters.embedders.minilm import MiniLmEmbedder
from palyra.adapters.net.client import HttpClient, Timeouts
from palyra.app.model_facts import model_sections
from palyra.app.secrets import SecretSources
from palyra.config import Config
from palyra.core.errors import Invalid, PalyraError
from palyra.ports.embedder import VectorIndex
from palyra.ports.services import ServiceHealth, ServiceState

BUNDLED, MINILM = "bundled", "minilm"
KINDS = frozenset({"openai-chat", "openai-responses"})  # Their base address has /embeddings too.
LOAD_AFTER_S = 1.0  # The start itself comes first.
DEFAULT_BASE_URL = "https://api.openai.com/v1"

ChosenEmbedder = BundledEmbedder | MiniLmEmbedder | EndpointEmbeddings


def choose_embedder(config: Config, client: HttpClient, secrets: SecretSources) -> ChosenEmbedder:
    name = config.memory.embedder
    if name == BUNDLED:
        return BundledEmbedder()
    if name == MINILM:
        return MiniLmEmbedder()
    for model, provider in model_sections(config):
        if model.name != name:
            continue
        if provider.kind not in KINDS:
            raise Invalid(
                "embedder_invalid", f"memory.embedder: {name} is of kind {provider.kind}, which has no embeddings"
            )
        wanted = EmbeddingModel(
            name=model.name,
            id=model.id or model.name,
            base_url=provider.base_url or DEFAULT_BASE_URL,
            timeouts=Timeouts(
                connect_s=provider.connect_timeout_s,
                first_byte_s=provider.first_token_timeout_s,
                idle_s=provider.idle_timeout_s,
            ),
        )
        return EndpointEmbeddings(wanted, secrets.source(provider.api_key), client)
    raise Invalid("embedder_invalid", f"memory.embedder: there is no [[model]] named {name}")


class EmbedderService:
    """The embedder as the watchdog sees it.

    Its weights take some 100 MB. They are loaded soon after the start if anything is remembered, so that no search waits
    for them, and else at their first use.
    """

    name = "embedder"
    domain = "embedder"
    restarts_itself = False

    def __init__(self, embedder: ChosenEmbedder, words: BundledEmbedder, index: VectorIndex) -> None:
        chosen = () if isinstance(embedder, EndpointEmbeddings | BundledEmbedder) else (embedder,)
        self._local = (words, *chosen)
        self._index = index
        self._loading: asyncio.Task[None] | None = None
        self._failure = ""
        self._failure_needs_person = False

    async def start(self) -> None:
        self._loading = asyncio.create_task(self._load(), name="embedder")

    async def close(self) -> None:
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
            await asyncio.wait([loading])
        self._failure = ""

    async def health(self) -> ServiceHealth:
        if self._failure:
            return ServiceHealth(
                state=ServiceState.FAILED, reason=self._failure, needs_person=self._failure_needs_person
            )
        is_loaded = self._loading is not None and all(one.is_loaded for one in self._local)
        return ServiceHealth(state=ServiceState.OK if is_loaded else ServiceState.IDLE)

    async def restart(self) -> None:
        await self.close()
        await self.start()

    async def _load(self) -> None:
        self._failure = ""
        await asyncio.sleep(LOAD_AFTER_S)
        try:
            if await self._index.has_items():
                for one in self._local:
                    await asyncio.to_thread(one.load)
        except (PalyraError, OSError, ValueError) as fault:
            told = fault.message if isinstance(fault, PalyraError) else str(fault)
            self._failure_needs_person = isinstance(fault, PalyraError) and not fault.is_retryable
            self._failure = f"{told}; memory is searched by words meanwhile"
