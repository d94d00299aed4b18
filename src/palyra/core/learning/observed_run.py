"""A run that is over, as learning looks at it.

Owns: what of a run's events counts: what people said, what was answered, which tools worked, what the run was given.
Does not own: reading the tape (engine.learning), what is drawn from it (rules, reflection, procedures, lift).
Output of tools is left out on purpose. What a page, a document or a program says is not what a person said.
"""

from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.model import DocumentRead, MemoryRecalled
from palyra.core.events.run import MessageAssistant, MessageUser, RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.events.tool import EffectClass, Outcome, ToolFinished, ToolJudged, ToolProposed
from palyra.core.ids import CallId, Principal, RunId, SessionId, is_agent
from palyra.core.trust import Trust, lowest
from palyra.core.typed import typed_words

STEPS_MAX = 64
TEXT_CHARS_MAX = 8_000


class SaidText(msgspec.Struct, frozen=True, kw_only=True):
    """Words of a person: those that they typed. `has_more` says that the message held words that were not typed."""

    seq: int
    text: str
    trust: Trust
    has_more: bool = False


class ToolStep(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was made, in order. `trust` is that of its output; `is_looking` says that it changed nothing."""

    seq: int
    tool: str
    arguments: JsonObject
    is_ok: bool
    trust: Trust
    is_looking: bool = False


class ObservedRun(msgspec.Struct, frozen=True, kw_only=True):
    """`taint` names the sources that the session's context holds and nobody vouches for.

    `known` are texts that the run was given: instructions, documents, remembered items. `memories` and `skills` name
    the items it was given or opened.
    """

    run_id: RunId
    session_id: SessionId
    owner: Principal
    agent: str = ""
    origin: str = ""
    is_done: bool = False
    ended_at_ms: int = 0
    said: tuple[SaidText, ...] = ()
    answers: tuple[SaidText, ...] = ()
    steps: tuple[ToolStep, ...] = ()
    memories: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    taint: tuple[str, ...] = ()
    trust: Trust = Trust.SYSTEM


def observe(run: ObservedRun, events: Sequence[Event]) -> ObservedRun:
    """Returns the run with what its events say. `run` names it; events of other runs are left out."""
    own = [event for event in events if event.run_id == run.run_id]
    accepted = next((event.data for event in own if isinstance(event.data, RunAccepted)), None)
    ended = next((event for event in own if isinstance(event.data, RunDone | RunFailed | RunCancelled)), None)
    finished = {event.data.call_id: event for event in own if isinstance(event.data, ToolFinished)}
    recalled = [item for event in own if isinstance(event.data, MemoryRecalled) for item in event.data.items]
    documents = [event.data for event in events if isinstance(event.data, DocumentRead)]
    return msgspec.structs.replace(
        run,
        agent=accepted.agent if accepted is not None else run.agent,
        origin=accepted.origin if accepted is not None else run.origin,
        is_done=ended is not None and isinstance(ended.data, RunDone),
        ended_at_ms=ended.at_ms if ended is not None else 0,
        said=_said(own),
        answers=tuple(
            SaidText(seq=event.seq, text=event.data.text[:TEXT_CHARS_MAX], trust=event.trust)
            for event in own
            if isinstance(event.data, MessageAssistant)
        ),
        steps=_steps(own, finished, _looking(own)),
        memories=tuple(dict.fromkeys(item.memory_id for item in recalled)),
        skills=_opened(finished.values()),
        known=(*run.known, *(document.text for document in documents if document.text)),
        trust=lowest([*(event.trust for event in own), *(item.trust for item in recalled)]),
    )


def said_text(seq: int, message: MessageUser, trust: Trust) -> SaidText:
    words = typed_words(message)
    return SaidText(seq=seq, text=words[:TEXT_CHARS_MAX], trust=trust, has_more=message.typed is not None)


def _said(own: Iterable[Event]) -> tuple[SaidText, ...]:
    """A task that a model wrote for another run is no person's word."""
    return tuple(
        said_text(event.seq, event.data, event.trust)
        for event in own
        if isinstance(event.data, MessageUser) and not is_agent(event.actor)
    )


def _looking(own: Iterable[Event]) -> frozenset[CallId]:
    """Returns the calls that only read, by what their verdicts say of them."""
    judged = [event.data for event in own if isinstance(event.data, ToolJudged)]
    return frozenset(verdict.call_id for verdict in judged if verdict.effect_class is EffectClass.READ_ONLY)


def _steps(own: Iterable[Event], finished: dict[CallId, Event], looking: frozenset[CallId]) -> tuple[ToolStep, ...]:
    steps: list[ToolStep] = []
    for event in own:
        if isinstance(event.data, ToolProposed) and len(steps) < STEPS_MAX:
            end = finished.get(event.data.call_id)
            arguments = event.data.arguments
            steps.append(
                ToolStep(
                    seq=event.seq,
                    tool=event.data.tool,
                    arguments=arguments if isinstance(arguments, dict) else {},
                    is_ok=end is not None and isinstance(end.data, ToolFinished) and end.data.outcome is Outcome.OK,
                    trust=end.trust if end is not None else Trust.SYSTEM,
                    is_looking=event.data.call_id in looking,
                )
            )
    return tuple(steps)


def _opened(finished: Iterable[Event]) -> tuple[str, ...]:
    names = [event.data.skill.name for event in finished if isinstance(event.data, ToolFinished) and event.data.skill]
    return tuple(dict.fromkeys(names))
