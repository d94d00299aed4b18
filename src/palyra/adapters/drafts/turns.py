"""Turns on the roots of workspaces: who applies, and who has a root alone.

Owns: waiting. Does not own: applying (store).
Drafts run side by side, and are applied one after the other for each root. A command that lost twice to others gets the
root alone: until its draft is settled nothing else is applied there. A root that lies in another one is a part of it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from palyra.core.errors import Unavailable
from palyra.core.ids import EffectId

WAIT_MAX_S = 900.0  # Longer than a command may run.


class RootTurns:
    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._alone: dict[str, EffectId] = {}
        self._applying: Counter[str] = Counter()

    async def have_alone(self, effect_id: EffectId, roots: tuple[str, ...]) -> None:
        """Waits until no other draft is applied to the roots, and keeps it so."""
        await self._wait(lambda: self._is_free(effect_id, roots))
        for root in roots:
            self._alone[root] = effect_id

    async def begin(self, effect_id: EffectId, roots: tuple[str, ...]) -> None:
        await self._wait(lambda: self._is_free(effect_id, roots))
        self._applying.update(roots)

    async def end(self, roots: tuple[str, ...]) -> None:
        async with self._changed:
            self._applying.subtract(roots)
            self._applying = +self._applying
            self._changed.notify_all()

    async def release(self, effect_id: EffectId) -> None:
        if effect_id not in self._alone.values():
            return
        async with self._changed:
            self._alone = {root: holder for root, holder in self._alone.items() if holder != effect_id}
            self._changed.notify_all()

    def _is_free(self, effect_id: EffectId, roots: tuple[str, ...]) -> bool:
        held = {root for root, holder in self._alone.items() if holder != effect_id}
        held |= {root for root, count in self._applying.items() if count}
        return not any(_overlap(root, other) for root in roots for other in held)

    async def _wait(self, is_ready: Callable[[], bool]) -> None:
        if is_ready():
            return
        try:
            async with asyncio.timeout(WAIT_MAX_S), self._changed:
                await self._changed.wait_for(is_ready)
        except TimeoutError as cause:
            raise Unavailable("root_busy", "another command has the workspace for too long; try again") from cause


def _overlap(root: str, other: str) -> bool:
    one, two = f"{root.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(two) or two.startswith(one)
