"""Joins the deltas that one read brought, so that tokens which came together leave together.

Does not own: the order of deltas, which stays.
Only neighbours of the same kind are joined, so the assembled answer is the same as token by token.
"""

from palyra.ports.provider import CallDelta, Completed, Delta, Failed, ReasoningDelta, TextDelta


class Pieces:
    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._texts: list[str] = []
        self._is_reasoning = False
        self._index = -1
        self._tool = ""
        self._arguments: list[str] = []
        self.has_ended = False

    def add_text(self, text: str) -> None:
        if self._is_reasoning or self._index >= 0:
            self._flush()
        self._texts.append(text)

    def add_reasoning(self, text: str) -> None:
        if not self._is_reasoning:
            self._flush()
            self._is_reasoning = True
        self._texts.append(text)

    def add_call(self, index: int, tool: str, arguments: str) -> None:
        if index != self._index:
            self._flush()
            self._index = index
        self._tool = self._tool or tool
        self._arguments.append(arguments)

    def end(self, delta: Completed | Failed) -> None:
        """Adds the last delta; anything added after it is not part of the answer."""
        self._flush()
        if not self.has_ended:
            self._deltas.append(delta)
            self.has_ended = True

    def take(self) -> list[Delta]:
        """Returns everything since the last call."""
        self._flush()
        taken, self._deltas = self._deltas, []
        return taken

    def _flush(self) -> None:
        if self._index >= 0:
            self._push(CallDelta(self._index, self._tool, "".join(self._arguments)))
            self._index = -1
            self._tool = ""
            self._arguments.clear()
        elif self._texts:
            text = "".join(self._texts)
            self._texts.clear()
            if text:
                self._push(ReasoningDelta(text) if self._is_reasoning else TextDelta(text))
        self._is_reasoning = False

    def _push(self, delta: Delta) -> None:
        if not self.has_ended:
            self._deltas.append(delta)
