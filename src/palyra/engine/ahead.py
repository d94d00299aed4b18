"""Ahead of a record. Owns: making a model call ready while the record that asks for it is on its way to the disk.

Not: the call. Invariants: nothing leaves for the model before `go`, which comes after the record is durable (L1); what is
dropped has never been. A journal that does not say when there is time leaves nothing to take over: the call then begins with
its record.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from palyra.core.events import Draft
from palyra.core.run.effects import CallModel
from palyra.core.writes import Write
from palyra.engine.model_call import ModelCall
from palyra.engine.office import Tasks

Found = tuple[tuple[Draft, ...], tuple[Write, ...]]
FindOut = Callable[[asyncio.Task[Any]], Found]


class Ready(msgspec.Struct, frozen=True):
    """A call, and how what it comes to is put on record."""

    call: ModelCall
    find_out: FindOut


class Ahead:
    """Of one commit, which may ask for no call at all."""

    def __init__(self, tasks: Tasks, effect: CallModel | None = None, make: Callable[[], Ready] | None = None) -> None:
        self.effect = effect
        self._tasks = tasks
        self._make = make
        self._ready: Ready | None = None
        self._task: asyncio.Task[Any] | None = None
        self._gate: asyncio.Future[None] | None = None
        self._is_over = False

    @property
    def meanwhile(self) -> Callable[[], None] | None:
        """What to do while the disk is waited for."""
        return self._begin if self._make is not None else None

    def _begin(self) -> None:
        """Too late, it does nothing."""
        if self._make is None or self._is_over or self._tasks.is_closing:
            return
        self._gate = asyncio.get_running_loop().create_future()
        self._ready = self._make()
        self._ready.call.hold(self._gate)
        self._task = self._tasks.spawn(self._ready.call.perform(), "CallModel ahead of its record")

    def go(self) -> tuple[asyncio.Task[Any], FindOut] | None:
        """The record is durable. None where nothing was begun."""
        self._is_over = True
        if self._task is None or self._ready is None or self._gate is None:
            return None
        if not self._gate.done():
            self._gate.set_result(None)
        return self._task, self._ready.find_out

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_problem: object) -> None:
        """What nobody took over by now, nobody will."""
        self.drop()

    def drop(self) -> None:
        """There is no record, so there is no call. What was taken over stays."""
        if self._is_over:
            return
        self._is_over = True
        if self._task is not None and self._ready is not None:
            self._task.cancel()
            self._ready.call.abandon()
