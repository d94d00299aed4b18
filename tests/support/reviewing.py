"""A model that answers, and reviews answers as a test wants; and a workshop whose runs can look at files."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from palyra.adapters.references.files import WorkspaceFiles
from palyra.core.events.model import Finish, Usage
from palyra.core.service_runs import REVIEW
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.references import ReferenceReaders
from tests.support.engines import Workshop

NO_REPLY = "I would rather not say."


class Author:
    """Answers each turn with the next text, and reviews with the next verdicts; None is a reply in another form."""

    def __init__(self, *answers: str, reviews: Sequence[Sequence[bool] | None] = ()) -> None:
        self.answers = list(answers)
        self.reviews = list(reviews)
        self.asked: list[ModelRequest] = []
        self.reviewed: list[ModelRequest] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if request.instructions == REVIEW.instructions:
            self.reviewed.append(request)
            await self.go_on.wait()
            yield TextDelta(_reply(self.reviews.pop(0) if len(self.reviews) > 1 else self.reviews[0]))
        else:
            self.asked.append(request)
            yield TextDelta(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        yield Completed(Finish.STOP, Usage(input_tokens=10, output_tokens=5))


def _reply(verdicts: Sequence[bool] | None) -> str:
    if verdicts is None:
        return NO_REPLY
    results = [
        {"number": number, "is_met": is_met, "missing": "" if is_met else "It names no source."}
        for number, is_met in enumerate(verdicts, 1)
    ]
    return json.dumps({"results": results})


def study_at(root: Path, author: Author, settings: EngineSettings | None = None) -> Workshop:
    made = Workshop(root, author, settings)
    made.references = ReferenceReaders(files=WorkspaceFiles())
    return made
