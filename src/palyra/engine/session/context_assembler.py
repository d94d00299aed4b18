"""Assembles the context of a turn (the prepare_model_provider_input of the seeds).

Owns: gathering the layers, counting their tokens, and the room that the model has.
Does not own: choosing among them (core.context.layers), rendering (core.context.prompt), planning the route.
The context is assembled before the route is planned, so that the plan's estimate is of what is sent. Its record joins
the same commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from palyra.core.context.documents import LAYER, document_texts
from palyra.core.context.layers import (
    ChosenContext,
    ContextCase,
    FixedLayer,
    SizedItem,
    choose_context,
    low_signal,
    protected_place,
)
from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.context.prompt import shorten
from palyra.core.context.window import Window
from palyra.core.events.model import ContextAssembled
from palyra.core.images import is_image
from palyra.core.run.state import Run
from palyra.core.service_runs import find_service
from palyra.core.taint import label, labels
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.pending_commit import PendingCommit
from palyra.engine.session.prompt_base import PromptBase, PromptBases
from palyra.ports.router import Router
from palyra.ports.token_counter import TokenCounter

MESSAGE_TOKENS = 6  # The role and the separators around a message.
IMAGE_TOKENS = 1_600  # What the dearest provider counts for the largest image that we send.
OUTPUT_SHARE = 0.25  # The most of a window that is kept free for the answer.
OUTPUT_TOKENS = 4_096  # Kept free if the model's configuration names no maximum.
STATE_BYTES_A_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAssembler:
    agents: AgentDirectory
    prompts: PromptBases
    router: Router
    counter: TokenCounter

    async def assemble(self, pending: PendingCommit, run: Run) -> ContextAssembled:
        window = pending.state.window
        chosen, budget_tokens = await self.choose(window, run)
        return ContextAssembled(
            turn=run.turn,
            budget_tokens=budget_tokens or 0,
            layers=chosen.layers,
            taint=labels(pending.state.taint),
            input_tokens=chosen.input_tokens,
            from_place=max(0, window.items[0].place) if window.items else 0,
            pruned_place=chosen.pruned_place,
            dropped_place=chosen.dropped_place,
            is_over=chosen.is_over,
            documents=tuple(document.place for document in window.documents),
        )

    async def choose(self, window: Window, run: Run) -> tuple[ChosenContext, int | None]:
        """Returns what would be sent, and the room for it."""
        model, budget_tokens = self._room(run)
        case = ContextCase(
            budget_tokens=budget_tokens,
            fixed=(*await self._fixed_layers(model, run), *await self._document_layers(model, window)),
            items=await self._sized_items(model, window),
            protected_place=protected_place(window),
            pruned_place=window.pruned_place,
            dropped_place=window.dropped_place,
        )
        return choose_context(case), budget_tokens

    def _room(self, run: Run) -> tuple[str, int | None]:
        """Returns the model that is likely to be called, and how many tokens of input it takes."""
        agent, service = self.agents.of_run(run.agent), find_service(run.agent)
        options = self.router.options(agent.route, run.model).options
        option = next((each for each in options if each.known is not None and not each.is_open), None)
        if option is None or option.known is None:
            return run.model or "", None
        window_tokens = option.known.window_tokens
        if window_tokens is None:
            return option.model, None
        wanted = option.known.max_output_tokens or OUTPUT_TOKENS
        if service is not None:
            wanted = min(wanted, service.max_output_tokens)
        return option.model, max(0, window_tokens - min(wanted, round(window_tokens * OUTPUT_SHARE)))

    async def _fixed_layers(self, model: str, run: Run) -> tuple[FixedLayer, ...]:
        base = self.prompts.of(self.agents.of_run(run.agent), run.skills, run.lineage)
        texts = (base.instructions, _tools_text(base, run))
        instructions, tools = await self.counter.count(model, texts)
        layers = (
            FixedLayer(name="instructions", source=f"agent:{run.agent}", trust=Trust.OPERATOR, tokens=instructions),
            FixedLayer(name="tools", source="catalog", trust=Trust.SYSTEM, tokens=tools),
        )
        return tuple(layer for layer in layers if layer.tokens)

    async def _document_layers(self, model: str, window: Window) -> tuple[FixedLayer, ...]:
        counted = await self.counter.count(model, document_texts(window.documents)) if window.documents else ()
        return tuple(
            FixedLayer(name=LAYER, source=label("file", each.path), trust=each.trust, tokens=tokens + MESSAGE_TOKENS)
            for each, tokens in zip(window.documents, counted, strict=True)
        )

    async def _sized_items(self, model: str, window: Window) -> tuple[SizedItem, ...]:
        messages = [item.message for item in window.items]
        tokens = await self._count(model, messages)
        short = {item.place: shorten(item.message) for item in window.items if isinstance(item.message, ToolMessage)}
        short_tokens = dict(zip(short, await self._count(model, list(short.values())), strict=True))
        replaced = low_signal(window)
        return tuple(
            SizedItem(
                place=item.place,
                trust=item.trust,
                tokens=size,
                short_tokens=short_tokens.get(item.place, 0),
                is_result=item.place in short,
                replaced_at=replaced.get(item.place),
            )
            for item, size in zip(window.items, tokens, strict=True)
        )

    async def _count(self, model: str, messages: Sequence[Message]) -> list[int]:
        counted = await self.counter.count(model, [_counted_text(message) for message in messages])
        return [
            tokens + MESSAGE_TOKENS + _extra_tokens(message) for tokens, message in zip(counted, messages, strict=True)
        ]


def _counted_text(message: Message) -> str:
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return message.text + "".join(f"{call.tool}{call.arguments}" for call in message.tool_calls)
    if isinstance(message, UserMessage) and message.attachments:
        return message.text + "".join(each.text.shown for each in message.attachments if each.text is not None)
    return message.text


def _extra_tokens(message: Message) -> int:
    match message:
        case UserMessage(attachments=attachments):
            return sum(IMAGE_TOKENS if is_image(each) else MESSAGE_TOKENS for each in attachments)
        case AssistantMessage(provider_state=dict() as state):
            return len(msgspec.json.encode(state)) // STATE_BYTES_A_TOKEN
        case _:
            return 0


def _tools_text(base: PromptBase, run: Run) -> str:
    schema = msgspec.json.encode(run.answer_schema).decode() if run.answer_schema is not None else ""
    return base.tools_text + schema
