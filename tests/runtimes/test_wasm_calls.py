"""Calls of modules: every way they can end, what they cannot reach, and that stopping one stops it and no other."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from wasmtime import wat2wasm

from palyra.adapters.runtimes.wasm.host import CALLS_MAX, LOG_BYTES_MAX, LOG_LINES_MAX, PIECE_BYTES_MAX
from palyra.adapters.runtimes.wasm.module_call import ANSWER_BYTES_MAX
from palyra.adapters.runtimes.wasm.plugin_folder import open_plugin
from palyra.adapters.runtimes.wasm.runtime import CALLS_AT_ONCE_MAX, PluginCall, WasmRuntime
from palyra.adapters.runtimes.wasm.tool import QUESTION_BYTES_MAX
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.tools import Runtime
from palyra.core.trust import Trust
from tests.runtimes.wasm_plugins import ECHO, MANY, SCHEMA_ERRORS, SPIN, Bench, function, manifest, module, shelve
from tests.support.tool_calls import code_of, context, execute
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
PATIENCE_S = 30.0
LOG = '(import "palyra" "log" (func $log (param i32 i32) (result i32)))'
CLOCK = '(import "palyra" "now_ms" (func $now (result i64)))'
RANDOM = '(import "palyra" "random" (func $random (param i32 i32) (result i32)))'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.runtime.close()


async def test_arguments_go_in_as_json_and_the_answer_comes_back_in_a_named_sandbox(bench: Bench) -> None:
    result = await execute(bench.tool(module(ECHO), "json"), {"a": [1, "é"]})
    assert (result.outcome, result.output, result.error) == (Outcome.OK, '{"a":[1,"é"]}', None)
    assert (result.sandbox, result.trust) == ("wasmtime", None)


async def test_tool_is_foreign_asks_for_nothing_that_policies_guard_and_cannot_be_repeated(bench: Bench) -> None:
    tool = bench.tool(module(ECHO))
    nature = tool.nature({}, ())
    assert (tool.spec.runtime, tool.spec.capabilities) == (Runtime.WASM, frozenset())
    assert (nature.effect_class, nature.parallel_class) == (EffectClass.ONCE, ParallelClass.NEVER)
    assert tool.spec.output_trust is Trust.EXTERNAL


TRAPS = {
    "fuel_exhausted": SPIN,
    "stack_overflow": '(func $r (export "f") (param i32 i32) (result i64) (call $r (local.get 0) (local.get 1)))',
    "memory_limit": function("(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)"),
    "trap": function("(unreachable)"),
}


@pytest.mark.parametrize("code", TRAPS)
async def test_each_kind_of_trap_has_its_code_and_words_of_ours(bench: Bench, code: str) -> None:
    result = await execute(bench.tool(module(TRAPS[code]), limits="fuel = 50_000_000, memory_mib = 2"), {})
    assert (result.outcome, code_of(result)) == (Outcome.FAILED, code)
    assert (result.output, result.trust, result.sandbox) == ("", Trust.SYSTEM, "wasmtime")
    assert result.error is not None
    assert result.error.message.startswith("wasm.p1.f: ")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("(drop (i32.div_u (i32.const 1) (i32.const 0))) (i64.const 0)", "integer_division_by_zero"),
        ("(i64.load (i32.const -8))", "memory_out_of_bounds"),
        ("(memory.fill (i32.const 0) (i32.const 1) (i32.const 70000)) (i64.const 0)", "memory_out_of_bounds"),
        ("(i64.trunc_f64_u (f64.const nan))", "bad_conversion_to_integer"),
        ("(call_indirect (param i32) (i32.const 1) (i32.const 0)) (i64.const 0)", "indirect_call_to_null"),
    ],
)
async def test_fault_of_a_module_is_a_trap_with_its_name(bench: Bench, body: str, word: str) -> None:
    result = await execute(bench.tool(module("(table 1 funcref)", function(body))), {})
    assert code_of(result) == "trap"
    assert result.error is not None
    assert f"({word})" in result.error.message


async def test_endless_loop_with_fuel_for_ever_ends_at_its_time_limit(bench: Bench) -> None:
    result = await execute(bench.tool(module(SPIN), limits=f"fuel = {MANY}, timeout_s = 0.2"), {})
    assert (result.outcome, code_of(result)) == (Outcome.TIMEOUT, "timeout")


async def test_time_limit_is_kept_by_one_that_lives_in_host_calls(bench: Bench) -> None:
    body = f"(loop (drop (call $random (i32.const 0) (i32.const {PIECE_BYTES_MAX}))) (br 0)) (unreachable)"
    wasm = module(function(body), imports=RANDOM)
    limits = f"fuel = {MANY}, timeout_s = 0.1"
    assert code_of(await execute(bench.tool(wasm, capabilities='["random"]', limits=limits), {})) == "timeout"


async def test_endless_start_of_a_module_ends_too(bench: Bench) -> None:
    wasm = module(ECHO, "(func $begin (loop (br 0)))", start="(start $begin)")
    assert code_of(await execute(bench.tool(wasm, limits="fuel = 1_000_000"), {})) == "fuel_exhausted"
    slow = bench.tool(wasm, limits=f"fuel = {MANY}, timeout_s = 0.2")
    assert code_of(await execute(slow, {})) == "timeout"


async def test_loop_goes_on_while_a_module_runs(bench: Bench) -> None:
    tool = bench.tool(module(SPIN), limits=f"fuel = {MANY}, timeout_s = 60")
    running = asyncio.create_task(execute(tool, {}))
    await until(lambda: busy_count(bench.runtime) == 1)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert busy_count(bench.runtime) == 1
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    ("memory", "limits", "code"),
    [
        ('(memory (export "memory") 32)', "memory_mib = 2", None),
        ('(memory (export "memory") 33)', "memory_mib = 2", "memory_limit"),
        ('(memory (export "memory") 65536)', "memory_mib = 256", "memory_limit"),
        ('(memory (export "memory") 1) (table 100000 funcref)', "memory_mib = 2", None),
        ('(memory (export "memory") 1) (table 100001 funcref)', "memory_mib = 2", "memory_limit"),
        ('(memory (export "m") 1)', "", "module_invalid"),
        ('(memory (export "memory") 1 2) (memory 1)', "", "module_invalid"),
        ('(memory (export "memory") 1 2 shared)', "", "module_invalid"),
        ('(memory (export "memory") i64 1)', "", "module_invalid"),
    ],
    ids=["all_of_it", "a_page_more", "4_gib", "table", "larger_table", "hidden", "two", "shared", "64_bit"],
)
async def test_memory_that_a_module_declares_has_to_fit(
    bench: Bench, memory: str, limits: str, code: str | None
) -> None:
    assert code_of(await execute(bench.tool(module(ECHO, memory=memory), limits=limits), {})) == code


@pytest.mark.parametrize(
    ("wanted", "capabilities", "words"),
    [
        ('(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))', "[]", "no WASI"),
        ('(import "env" "system" (func (param i32)))', "[]", "env.system"),
        ('(import "palyra" "exec" (func))', '["log"]', "palyra.exec"),
        ('(import "palyra" "memory" (memory 1))', '["log"]', "palyra.memory"),
        (RANDOM, '["log", "clock"]', 'add "random" to capabilities'),
        ('(import "palyra" "log" (func (param i64) (result i32)))', '["log"]', "(i32, i32) -> (i32)"),
        ('(import "palyra" "now_ms" (global i64))', '["clock"]', "() -> (i64)"),
    ],
)
async def test_import_that_is_not_there_is_named_with_what_to_do(
    bench: Bench, wanted: str, capabilities: str, words: str
) -> None:
    memory = "" if "(memory" in wanted else '(memory (export "memory") 1)'
    result = await execute(bench.tool(module(ECHO, imports=wanted, memory=memory), capabilities=capabilities), {})
    assert code_of(result) == "import_missing"
    assert result.error is not None
    assert words in result.error.message


@pytest.mark.parametrize(
    "export",
    [
        function("(i64.const 0)", "g"),
        '(func (export "f") (param i32) (result i64) (i64.const 0))',
        '(func (export "f") (param i32 i32) (result i32) (i32.const 0))',
        '(func (export "f") (param i32 i32))',
        '(global (export "f") i64 (i64.const 0))',
        '(func (export "f") (param i32 externref) (result i64) (i64.const 0))',
    ],
)
async def test_function_that_is_missing_or_has_another_form_is_named(bench: Bench, export: str) -> None:
    result = await execute(bench.tool(module(export)), {})
    assert code_of(result) == "module_invalid"
    assert result.error is not None
    assert "function f (i32, i32) -> i64" in result.error.message


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        (0, None),
        (65536 << 32, None),
        (65537 << 32, "answer_invalid"),
        (0xFFFFFFFF << 32, "answer_invalid"),
        ((65536 << 32) | 1, "answer_invalid"),
        ((65530 << 32) | 7, "answer_invalid"),
        ((0x7FFFFFFF << 32) | 0x1000, "answer_invalid"),
        (0xFFFFFFFF, "answer_invalid"),
        ((1 << 64) - 1, "answer_invalid"),
    ],
)
async def test_answer_outside_the_memory_is_refused(bench: Bench, packed: int, code: str | None) -> None:
    signed = packed - (1 << 64) if packed >= 1 << 63 else packed
    assert code_of(await execute(bench.tool(module(function(f"(i64.const {signed})"))), {})) == code


@pytest.mark.parametrize(("size", "code"), [(ANSWER_BYTES_MAX, None), (ANSWER_BYTES_MAX + 1, "answer_invalid")])
async def test_answer_has_a_largest_size(bench: Bench, size: int, code: str | None) -> None:
    body = f"(memory.fill (i32.const 0) (i32.const 97) (i32.const {size})) (i64.const {size})"
    result = await execute(bench.tool(module(function(body), memory='(memory (export "memory") 20)')), {})
    assert code_of(result) == code
    assert len(result.output) == (size if code is None else 0)


@pytest.mark.parametrize(("output", "stored"), [("text", 0xFF), ("json", 0xFF), ("json", ord("{"))])
async def test_answer_that_is_not_what_was_promised_is_refused(bench: Bench, output: str, stored: int) -> None:
    body = f"(i32.store8 (i32.const 2048) (i32.const {stored})) (call $say (i32.const 1))"
    result = await execute(bench.tool(module(function(body)), output), {})
    assert (code_of(result), result.output) == ("answer_invalid", "")


async def test_refusal_of_a_plugin_is_a_failure_with_its_words_as_output(bench: Bench) -> None:
    body = "(i32.store8 (i32.const 2048) (i32.const 110)) (i64.or (i64.const -9223372036854775808) (call $say (i32.const 1)))"
    result = await execute(bench.tool(module(function(body)), "json"), {})
    assert (result.outcome, code_of(result), result.output) == (Outcome.FAILED, "plugin_refused", "n")
    assert result.trust is None, "the words are the plugin's, so they have its trust"


@pytest.mark.parametrize("place", [-1, 65535, 2_000_000_000, -65536])
async def test_alloc_that_leads_outside_is_refused(bench: Bench, place: int) -> None:
    result = await execute(bench.tool(with_alloc(f"(i32.const {place})")), {"a": 1})
    assert code_of(result) == "answer_invalid"


async def test_alloc_that_traps_is_a_trap(bench: Bench) -> None:
    assert code_of(await execute(bench.tool(with_alloc("(unreachable)")), {"a": 1})) == "trap"


async def test_module_may_write_over_its_own_arguments_without_anyone_noticing(bench: Bench) -> None:
    body = "(memory.fill (local.get $ptr) (i32.const 120) (local.get $len)) " + ECHO.partition("(result i64)")[2][:-1]
    arguments: dict[str, object] = {"a": "bcd"}
    result = await execute(bench.tool(module(function(body))), arguments)
    assert (result.output, arguments) == ("x" * 11, {"a": "bcd"})


async def test_calls_at_once_share_no_memory(bench: Bench) -> None:
    """Each counts in its own memory and global, long enough to overlap."""
    body = """(local $n i32) (local.set $n (i32.const 2000000))
      (loop (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if 0 (local.get $n)))
      (i32.store8 (i32.const 2048) (i32.add (i32.const 48) (i32.eq (i32.load (i32.const 8)) (i32.const 2000000))))
      (call $say (i32.const 1))"""
    tool = bench.tool(module(function(body)))
    results = await asyncio.gather(*[execute(tool, {}) for _ in range(3 * CALLS_AT_ONCE_MAX)])
    assert {result.output for result in results} == {"1"}


async def test_cancel_frees_every_thread_at_once(bench: Bench) -> None:
    """With a minute and fuel for hours, each of these would hold its thread, and the last call would never come to run."""
    spinning = bench.tool(module(SPIN), limits=f"fuel = {MANY}, timeout_s = 60")
    tasks = [asyncio.create_task(execute(spinning, {})) for _ in range(CALLS_AT_ONCE_MAX + 2)]
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: busy_count(bench.runtime) >= CALLS_AT_ONCE_MAX)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks)
        assert (await execute(bench.tool(module(ECHO)), {})).output == "{}"


async def test_cancel_of_one_call_leaves_the_others_alone(bench: Bench) -> None:
    second_codes: list[str | None] = []
    for timeout_s in (1, 10, 60):  # On a busy machine a short call may be over before both run.
        tool = bench.tool(module(SPIN), limits=f"fuel = {MANY}, timeout_s = {timeout_s}")
        first, second = (asyncio.create_task(execute(tool, {})) for _ in range(2))
        await until(lambda: busy_count(bench.runtime) >= 2 or first.done() or second.done())  # noqa: B023 - of this round
        first.cancel()
        await asyncio.wait({first})
        overlapped = first.cancelled() and not second.done()
        second_code = code_of(await second)
        if overlapped:
            second_codes.append(second_code)
            break
    assert second_codes == ["timeout"]


async def test_fuel_is_counted_the_same_every_time_and_ends_what_needs_more(tmp_path: Path) -> None:
    wasm = module(function("(drop (i32.mul (i32.load8_u (i32.const 4098)) (i32.const 3))) (i64.const 0)"))
    used = {await fuel_of(tmp_path, wasm, 1_000_000) for _ in range(5)}
    (fuel,) = used
    assert 0 < fuel < 1000
    wasm = module(
        function(
            "(local $n i32) (loop (local.set $n (i32.add (local.get $n) (i32.const 1))) "
            "(br_if 0 (i32.lt_u (local.get $n) (i32.const 1000)))) (i64.const 0)"
        )
    )
    fuel = await fuel_of(tmp_path, wasm, 1_000_000)
    assert await fuel_of(tmp_path, wasm, fuel) == fuel
    with pytest.raises(Invalid) as caught:
        await fuel_of(tmp_path, wasm, fuel - 100)  # Looked at once a turn of the loop, which burns about ten.
    assert caught.value.code == "fuel_exhausted"


async def test_log_reaches_the_live_output_and_ends_at_its_limit(bench: Bench) -> None:
    body = (
        f"(local $n i32) (loop (drop (call $log (i32.const 0) (i32.const {PIECE_BYTES_MAX // 2}))) "
        "(local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 5)))) (i64.const 0)"
    )
    memory = '(memory (export "memory") 1) (data (i32.const 0) "hello \\ff")'
    tool = bench.tool(module(function(body), imports=LOG, memory=memory), capabilities='["log"]')
    heard: list[tuple[str, str]] = []
    asked = context()
    await tool.execute({}, msgspec.structs.replace(asked, emit=lambda stream, text: heard.append((stream, text))))
    assert {stream for stream, _ in heard} == {"stderr"}
    assert heard[0][1].startswith("hello \ufffd")
    assert sum(len(text) - 1 for _, text in heard) == LOG_BYTES_MAX


async def test_log_has_a_largest_count_of_lines(bench: Bench) -> None:
    body = (
        "(local $n i32) (loop (drop (call $log (i32.const 0) (i32.const 1))) "
        "(local.set $n (i32.add (local.get $n) (i32.const 1))) "
        f"(br_if 0 (i32.lt_u (local.get $n) (i32.const {LOG_LINES_MAX + 5})))) (i64.const 0)"
    )
    tool = bench.tool(module(function(body), imports=LOG), capabilities='["log"]')
    heard: list[str] = []
    await tool.execute({}, msgspec.structs.replace(context(), emit=lambda stream, text: heard.append(text)))
    assert len(heard) == LOG_LINES_MAX


@pytest.mark.parametrize(("count", "code"), [(CALLS_MAX, None), (CALLS_MAX + 1, "fuel_exhausted")])
async def test_host_can_be_called_only_so_often(bench: Bench, count: int, code: str | None) -> None:
    body = (
        "(local $n i32) (loop (drop (call $now)) (local.set $n (i32.add (local.get $n) (i32.const 1))) "
        f"(br_if 0 (i32.lt_u (local.get $n) (i32.const {count})))) (loop (nop)) (i64.const 0)"
    )
    limits = f"fuel = {MANY}, timeout_s = 60"
    tool = bench.tool(module(function(body), imports=CLOCK), capabilities='["clock"]', limits=limits)
    assert code_of(await execute(tool, {})) == code


async def test_clock_and_random_are_what_they_say(bench: Bench) -> None:
    body = """(i64.store (i32.const 2048) (i64.const 0x3030303030303030))
      (if (i64.gt_s (call $now) (i64.const 1700000000000)) (then (i32.store8 (i32.const 2048) (i32.const 49))))
      (drop (call $random (i32.const 0) (i32.const 8))) (drop (call $random (i32.const 8) (i32.const 8)))
      (if (i64.ne (i64.load (i32.const 0)) (i64.load (i32.const 8))) (then (i32.store8 (i32.const 2049) (i32.const 49))))
      (call $say (i32.const 2))"""
    wasm = module(function(body), imports=CLOCK + RANDOM)
    assert (await execute(bench.tool(wasm, capabilities='["clock", "random"]'), {})).output == "11"


@pytest.mark.parametrize("start", [-1, 65535, 0])
@pytest.mark.parametrize("called", ["log", "random"])
async def test_host_function_answers_a_wrong_place_with_minus_one(bench: Bench, called: str, start: int) -> None:
    length = 2 if start else PIECE_BYTES_MAX + 1
    body = f"""(i32.store8 (i32.const 2048) (i32.add (i32.const 49) (call ${called} (i32.const {start}) (i32.const {length}))))
      (call $say (i32.const 1))"""
    wasm = module(function(body), imports=LOG + RANDOM, memory='(memory (export "memory") 1)')
    assert (await execute(bench.tool(wasm, capabilities='["log", "random"]'), {})).output == "0"


async def test_arguments_have_a_largest_size(bench: Bench) -> None:
    tool = bench.tool(module(ECHO, memory='(memory (export "memory") 20)'))
    whole: JsonObject = {"a": "x" * (QUESTION_BYTES_MAX - 8)}
    assert len((await execute(tool, whole)).output) == QUESTION_BYTES_MAX
    assert code_of(await execute(tool, {"a": "x" * (QUESTION_BYTES_MAX - 7)})) == "arguments_invalid"


async def test_module_changed_on_the_disk_after_it_was_found_is_not_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tool = bench.tool(module(ECHO))
    (tmp_path / "p1" / "p.wasm").write_bytes(module(SPIN))
    assert code_of(await execute(tool, {})) == "module_changed"


def busy_count(runtime: WasmRuntime) -> int:
    """How many calls a deadline is set for: those that run."""
    return len(runtime._deadlines._due)


async def fuel_of(tmp_path: Path, wasm: bytes, fuel: int) -> int:
    folder = shelve(tmp_path, wasm, manifest(wasm, limits=f"fuel = {max(fuel, 1000)}"))
    plugin = open_plugin(folder, SCHEMA_ERRORS)
    runtime = WasmRuntime()
    asked = PluginCall(manifest=plugin.manifest, sha256=plugin.sha256, function="f", question=b"{}")
    try:
        return (await runtime.call(asked, plugin.read_wasm, lambda text: None)).fuel
    finally:
        runtime.close()


def with_alloc(body: str) -> bytes:
    return bytes(
        wat2wasm(
            f'(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) {body}) {ECHO})'
        )
    )
