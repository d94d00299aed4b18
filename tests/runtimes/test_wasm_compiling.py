"""Compiling what anyone may have made: it is refused or compiled, within limits, and never takes the daemon with it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.runtimes.wasm import compiler
from palyra.adapters.runtimes.wasm.compiled_modules import CompiledModules, compile_module
from palyra.core.errors import Invalid, PalyraError
from tests.runtimes.wasm_plugins import ECHO, SPIN, module
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


def nested(depth: int) -> bytes:
    """A function of so many loops in each other, four bytes each: 1.5 MB of it takes the compiler over a gigabyte."""
    body = b"\0" + b"\x03\x40" * depth + b"\x0b" * depth + b"\x0b"
    code = b"\x01" + size(len(body)) + body
    return b"\0asm\1\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a" + size(len(code)) + code


def size(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


async def refused(wasm: bytes) -> str:
    with pytest.raises(Invalid) as caught:
        await compile_module(wasm)
    assert caught.value.code == "module_invalid"
    return caught.value.message


@pytest.mark.parametrize(
    "wasm",
    [
        b"",
        b"\0asm",
        b"\0asm\1\0\0\0garbage",
        b"(module)",
        module(ECHO)[:-3],
        b"\0asm\x0d\0\1\0",
        b"\x7fELF" + b"\0" * 64,
        b"\0asm" + b"\0" * compiler.WASM_BYTES_MAX,
    ],
    ids=["empty", "short", "garbage", "text", "cut", "component", "program", "large"],
)
async def test_what_is_no_module_is_refused_in_words(wasm: bytes) -> None:
    assert await refused(wasm)


async def test_module_that_makes_the_compiler_explode_ends_with_its_process() -> None:
    assert "MiB" in await refused(nested(1_500_000))


async def test_module_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very program with one second of the processor, on a module that needs many."""
    text = Path(compiler.__file__).read_text().replace("COMPILE_CPU_S_MAX = 20", "COMPILE_CPU_S_MAX = 1")
    (tmp_path / "impatient.py").write_text(text)
    monkeypatch.setattr(compiler, "__file__", str(tmp_path / "impatient.py"))
    assert "simplify" in await refused(nested(40_000))


async def test_cancel_ends_the_process_that_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    script = f"import os, pathlib, time\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    (tmp_path / "sleeper.py").write_text(script)
    monkeypatch.setattr(compiler, "__file__", str(tmp_path / "sleeper.py"))
    task = asyncio.create_task(compile_module(module(ECHO)))
    await until(lambda: note.exists() and note.read_text())
    async with asyncio.timeout(30):
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_module_is_compiled_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    modules, reads = CompiledModules(), []

    def read() -> bytes:
        reads.append(1)
        return module(SPIN)

    found = await asyncio.gather(*[modules.get("x", read) for _ in range(5)])
    assert all(each is found[0] for each in found)
    assert len(reads) == 1


async def test_failure_to_compile_is_not_kept() -> None:
    modules = CompiledModules()
    with pytest.raises(PalyraError):
        await modules.get("x", lambda: b"none")
    assert await modules.get("x", lambda: module(ECHO))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200), is_headed=st.booleans())
def test_any_bytes_are_compiled_or_refused(body: bytes, is_headed: bool) -> None:
    try:
        compiled = asyncio.run(compile_module(b"\0asm\1\0\0\0" * is_headed + body))
    except PalyraError as error:
        assert error.code == "module_invalid"
    else:
        assert compiled


def test_mutated_modules_never_crash_who_compiles_and_runs_them() -> None:
    """In a process of its own, so that a crash is a failed test and not the end of all tests."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtimes.wasm_mutations", "400"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    ran, refused_count = (int(word) for word in done.stdout.split())
    assert ran > 20
    assert refused_count > 20
