"""Long texts that a stranger can send or have a tool print, chosen to cost as much as they can."""

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.tools import CallNature, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

OUTPUT_CHARS = 900_000
MESSAGE_CHARS = 180_000

# What was found to cost most a character, and what the design names.
COSTLY = {
    "names": "password=",
    "names and blanks": "key ",
    "names in JSON": '{"password":',
    "open quotes": 'password = "a b c ',
    "private keys": "-----BEGIN PRIVATE KEY-----\n",
    "brackets": "pwd=a(b",
}


def of_length(text: str, chars: int) -> str:
    return (text * (chars // len(text) + 1))[:chars]


class Printer:
    """A tool that reads only, and prints one long text while it runs and at its end."""

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            name="test.print",
            description="prints",
            input_schema={"type": "object"},
            capabilities=frozenset(),
            effect_class=EffectClass.READ_ONLY,
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            output_trust=Trust.LOCAL,
        )

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        context.emit("stdout", self._text[:64_000])
        return ToolResult(outcome=Outcome.OK, output=self._text)


def prints() -> Turn:
    return Turn(calls=(PreparedCall("test.print", {}),))
