"""An embedder that costs money: each request is the model call of a service run.

Owns: opening a batch, the run that fills it, and taking its vectors.
Does not own: the request itself (adapters.embedders.endpoint).
So a request is planned, reserved, judged, settled and shown in usage like any other, for whom it serves (L9).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.errors import Unavailable
from palyra.core.ids import Principal
from palyra.core.service_runs import MEMORY_EMBEDDING, ServiceRequest
from palyra.engine.api.service_runs import ServiceRuns
from palyra.ports.embedder import EmbedderTraits, EmbeddingBatches


@dataclass(frozen=True, slots=True)
class MeteredEmbedder:
    batches: EmbeddingBatches
    services: ServiceRuns

    @property
    def traits(self) -> EmbedderTraits:
        return self.batches.traits

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        batch = self.batches.open(texts)
        vectors: tuple[bytes, ...] | None = None
        try:
            outcome = await self.services.perform(
                ServiceRequest(
                    spec=MEMORY_EMBEDDING,
                    principal=principal,
                    text=f"Embed {len(texts)} texts of memory.\n{batch}",
                    model=self.batches.model,
                    batch_tokens=self.batches.input_tokens(batch),
                )
            )
        finally:
            vectors = self.batches.take(batch)
        if vectors is None:
            why = outcome.message or outcome.code or "the run ended without vectors"
            raise Unavailable("embedder_failed", f"the embedder {self.batches.model} did not answer: {why}")
        return vectors
