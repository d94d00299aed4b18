"""A function of a plugin as the tool `wasm.<plugin>.<fn>`, and its answer as a result.

Does not own: running it (runtime).
"""

import msgspec
from msgspec.structs import replace

from palyra.adapters.runtimes.wasm.compiled_modules import COMPILE_WALL_S_MAX
from palyra.adapters.runtimes.wasm.manifest import AnswerForm, PluginFunction
from palyra.adapters.runtimes.wasm.plugin_folder import Plugin
from palyra.adapters.runtimes.wasm.runtime import PluginCall, WasmRuntime
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk, ToolError
from palyra.core.tools import CallNature, Runtime, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

QUESTION_BYTES_MAX = 1024 * 1024
SANDBOX = "wasmtime"
SLACK_S = 5.0  # Allows for waiting for a thread and making an instance on a busy machine.


class PluginTool:
    def __init__(self, plugin: Plugin, function: PluginFunction, runtime: WasmRuntime) -> None:
        self._plugin = plugin
        self._function = function
        self._runtime = runtime
        self._spec = make_spec(plugin, function)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=self._spec.effect_class, parallel_class=self._spec.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        question = msgspec.json.encode(arguments)
        if len(question) > QUESTION_BYTES_MAX:
            return failed("arguments_invalid", f"the arguments have more than {QUESTION_BYTES_MAX} bytes; give less")
        asked = PluginCall(
            manifest=self._plugin.manifest, sha256=self._plugin.sha256, function=self._function.name, question=question
        )
        try:
            answer = await self._runtime.call(
                asked, self._plugin.read_wasm, lambda text: context.emit("stderr", f"{text}\n")
            )
        except PalyraError as refused:
            return replace(self._refused(refused), sandbox=SANDBOX)
        return replace(self._result(answer.text, answer.is_refusal), sandbox=SANDBOX)

    def _refused(self, refused: PalyraError) -> ToolResult:
        told = failed(refused.code, f"{self._spec.name}: {refused.message}")
        outcome = Outcome.TIMEOUT if refused.code == "timeout" else Outcome.FAILED
        # These words are ours; none are the plugin's.
        return replace(told, outcome=outcome, trust=Trust.SYSTEM)

    def _result(self, answer: bytes, is_refusal: bool) -> ToolResult:
        try:
            text = answer.decode("utf-8")
            if self._function.output is AnswerForm.JSON and not is_refusal:
                msgspec.json.decode(answer)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            wanted = "JSON" if self._function.output is AnswerForm.JSON else "text in UTF-8"
            message = f"{self._spec.name}: its answer is not {wanted}; mend the plugin"
            return replace(failed("answer_invalid", message), trust=Trust.SYSTEM)
        if is_refusal:
            error = ToolError(code="plugin_refused", message=f"{self._spec.name} refused the call; its reason follows.")
            return ToolResult(outcome=Outcome.FAILED, output=text, error=error)
        return ToolResult(outcome=Outcome.OK, output=text)


def make_spec(plugin: Plugin, function: PluginFunction) -> ToolSpec:
    """Makes the spec. It has no capability that policies guard, because log, clock and random reach nothing protected.

    The time limit has room for compiling, once after each start. The runtime keeps the plugin's own limit.
    """
    is_read_only = function.effect_class is EffectClass.READ_ONLY
    return ToolSpec(
        name=tool_name(plugin.manifest.name, function.name),
        description=function.description,
        input_schema=function.input_schema,
        effect_class=function.effect_class,
        parallel_class=ParallelClass.READ_ONLY_SAFE if is_read_only else ParallelClass.NEVER,
        risk=Risk.MEDIUM,
        output_trust=Trust.EXTERNAL,
        runtime=Runtime.WASM,
        timeout_s=plugin.manifest.limits.timeout_s + COMPILE_WALL_S_MAX + SLACK_S,
        version=plugin.sha256,
    )


def tool_name(plugin: str, function: str) -> str:
    return f"wasm.{plugin}.{function}"
