"""Assembles the context of a turn (the prepare_model_provider_input of the first description).

Owns: gathering the layers, counting their tokens, and the room that the model has.
Does not own: choosing among them (core.context.layers), rendering (core.context.prompt), planning the route.
The context is assembled before the route is planned, so that the plan's estimate is of what is sent. Its record joins
the same commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.caller_tools import spec_of, with_callers
from palyra.core.compaction.model import CompactionSettings
from palyra.core.compaction.plan import CUTS
from palyra.core.context.documents import LAYER, document_texts
from palyra.core.context.layers import (
    TOOLS_LAYER,
    ChosenContext,
    ContextCase,
    FixedLayer,
    SizedItem,
    answered_place,
    choose_context,
    has_older_part,
    low_signal,
    protected_place,
)
from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.context.pins import render_pins
from palyra.core.context.prompt import shorten, tell_summary
from palyra.core.context.recalled import PREFERENCES_LAYER, is_recall, render_preferences
from palyra.core.context.window import CHARS_MAX, ITEMS_MAX, Window
from palyra.core.events.model import ContextAssembled
from palyra.core.images import is_image
from palyra.core.run.state import Run
from palyra.core.service_runs import find_service
from palyra.core.taint import Taint, find_source, label, labels
from palyra.core.trust import Trust, lowest
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.pending_commit import PendingCommit
from palyra.engine.session.prompt_base import PromptBase, PromptBases, text_of
from palyra.ports.router import Router
from palyra.ports.token_counter import TokenCounter

MESSAGE_TOKENS = 6  # The role and the separators around a message.
IMAGE_TOKENS = 1_600  # What the dearest provider counts for the largest image that we send.
OUTPUT_SHARE = 0.25  # The most of a window that is kept free for the answer.
OUTPUT_TOKENS = 4_096  # Kept free if the model's configuration names no maximum.
STATE_BYTES_A_TOKEN = 4
WINDOW_TOKENS_MAX = CHARS_MAX // 4  # What the window in memory holds, whatever the model would take.
SUMMARY_SHARE = 0.2  # The most of a model's room that a summary takes.
SUMMARY_TOKENS_MAX = 6_000
CHARS_A_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAssembler:
    agents: AgentDirectory
    prompts: PromptBases
    router: Router
    counter: TokenCounter
    compaction: CompactionSettings

    async def assemble(self, pending: PendingCommit, run: Run) -> ContextAssembled:
        window = pending.state.window
        chosen, budget_tokens = await self.choose(window, run)
        sources = self.prompts.of(self.agents.of_run(run.agent), run.skills, run.lineage).sources
        return ContextAssembled(
            turn=run.turn,
            budget_tokens=budget_tokens or 0,
            layers=chosen.layers,
            taint=_taint_with(pending.state.taint, sources),
            input_tokens=chosen.input_tokens,
            whole_tokens=chosen.whole_tokens,
            is_compaction_due=self._is_due(window, chosen, budget_tokens),
            from_place=max(0, window.items[0].place) if window.items else 0,
            pruned_place=chosen.pruned_place,
            dropped_place=chosen.dropped_place,
            summary_cut=chosen.summary_cut,
            is_over=chosen.is_over,
            documents=tuple(document.place for document in window.documents),
            preferences=tuple(each.place for each in window.preferences),
            tool_sources=sources,
        )

    def room_chars(self, run_agent: str, model: str | None) -> int:
        """Returns how long what stands for a compacted conversation may be: a share of what the tools leave."""
        _, budget_tokens = self._room(run_agent, model)
        if budget_tokens is None:
            return CHARS_A_TOKEN * SUMMARY_TOKENS_MAX
        tools_tokens = len(self.prompts.of(self.agents.of_run(run_agent), ()).tools_text) // CHARS_A_TOKEN
        left_tokens = max(budget_tokens - tools_tokens, round(budget_tokens * SUMMARY_SHARE))
        return CHARS_A_TOKEN * min(round(left_tokens * SUMMARY_SHARE), SUMMARY_TOKENS_MAX)

    def _is_due(self, window: Window, chosen: ChosenContext, budget_tokens: int | None) -> bool:
        """Compaction is due when the conversation fills much of what the tools leave, and not all of it is protected."""
        settings = self.compaction
        if not settings.is_automatic or chosen.whole_tokens < settings.min_tokens or not has_older_part(window):
            return False
        room = min(budget_tokens or WINDOW_TOKENS_MAX, WINDOW_TOKENS_MAX) - chosen.tools_tokens
        taken = chosen.whole_tokens - chosen.tools_tokens
        return taken >= settings.trigger * room or len(window.items) >= settings.trigger * ITEMS_MAX

    async def choose(self, window: Window, run: Run) -> tuple[ChosenContext, int | None]:
        """Returns what would be sent, and the room for it."""
        model, budget_tokens = self._room(run.agent, run.model)
        case = ContextCase(
            budget_tokens=budget_tokens,
            fixed=(
                *await self._base_layers(model, run),
                *await self._preference_layer(model, window),
                *await self._pinned(model, window),
                *await self._document_layers(model, window),
                *await self._summary_layer(model, window),
            ),
            items=await self._sized_items(model, window),
            protected_place=protected_place(window),
            answered_place=answered_place(window),
            pruned_place=window.pruned_place,
            dropped_place=window.dropped_place,
        )
        return choose_context(case), budget_tokens

    def _room(self, agent_name: str, model: str | None) -> tuple[str, int | None]:
        """Returns the model that is likely to be called, and how many tokens of input it takes."""
        agent, service = self.agents.of_run(agent_name), find_service(agent_name)
        options = self.router.options(agent.route, model).options
        option = next((each for each in options if each.known is not None and not each.is_open), None)
        if option is None or option.known is None:
            return model or "", None
        window_tokens = option.known.window_tokens
        if window_tokens is None:
            return option.model, None
        wanted = option.known.max_output_tokens or OUTPUT_TOKENS
        if service is not None:
            wanted = min(wanted, service.max_output_tokens)
        return option.model, max(0, window_tokens - min(wanted, round(window_tokens * OUTPUT_SHARE)))

    async def _base_layers(self, model: str, run: Run) -> tuple[FixedLayer, ...]:
        base = self.prompts.of(self.agents.of_run(run.agent), run.skills, run.lineage)
        texts = (with_callers(base.instructions, run), _tools_text(base, run))
        instructions, tools = await self.counter.count(model, texts)
        described = Trust.EXTERNAL if base.sources else Trust.SYSTEM
        layers = (
            FixedLayer(name="instructions", source=f"agent:{run.agent}", trust=Trust.OPERATOR, tokens=instructions),
            FixedLayer(name=TOOLS_LAYER, source="catalog", trust=described, tokens=tools),
        )
        return tuple(layer for layer in layers if layer.tokens)

    async def _summary_layer(self, model: str, window: Window) -> tuple[FixedLayer, ...]:
        if window.summary is None:
            return ()
        # The summary gives way only when no exchange is left that could be compacted instead.
        cuts = range(1 if has_older_part(window, 1) else len(CUTS))
        tokens, *cut_tokens = await self._count(model, [tell_summary(window.summary, cut) for cut in cuts])
        layer = FixedLayer(name="summary", source="compaction", trust=window.summary.trust, tokens=tokens)
        return (replace(layer, cut_tokens=tuple(cut_tokens)),)

    async def _pinned(self, model: str, window: Window) -> tuple[FixedLayer, ...]:
        shown = render_pins(window.pins)
        if not shown:
            return ()
        trust = lowest(pin.trust for pin in window.pins)
        return (FixedLayer(name="pinned", source="pins", trust=trust, tokens=sum(await self._count(model, shown))),)

    async def _preference_layer(self, model: str, window: Window) -> tuple[FixedLayer, ...]:
        shown = render_preferences(window.preferences)
        if not shown:
            return ()
        trust, tokens = lowest(each.item.trust for each in window.preferences), sum(await self._count(model, shown))
        return (FixedLayer(name=PREFERENCES_LAYER, source="memory", trust=trust, tokens=tokens),)

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
        recalled = window.items[-1].place if window.items and is_recall(window.items[-1].message.text) else None
        return tuple(
            SizedItem(
                place=item.place,
                trust=item.trust,
                tokens=size,
                short_tokens=short_tokens.get(item.place, 0),
                is_result=item.place in short,
                replaced_at=replaced.get(item.place),
                is_recalled=item.place == recalled,
            )
            for item, size in zip(window.items, tokens, strict=True)
        )

    async def _count(self, model: str, messages: Sequence[Message]) -> list[int]:
        counted = await self.counter.count(model, [_counted_text(message) for message in messages])
        return [
            tokens + MESSAGE_TOKENS + _extra_tokens(message) for tokens, message in zip(counted, messages, strict=True)
        ]


def _taint_with(taint: Taint, sources: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the session's taint with what the tools of this very call bring. A source that is trusted brings none."""
    new = {source for source in sources if find_source(taint, source) is None}
    return tuple(sorted({*labels(taint), *new}))


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
    callers = "\n".join(text_of(spec_of(tool)) for tool in run.caller_tools)
    return base.tools_text + callers + schema
