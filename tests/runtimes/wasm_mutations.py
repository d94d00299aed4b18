"""Modules with bytes changed at random. Owns: compiling and running each, in this process (`python -m … COUNT`).

Prints how many ran, to whatever end, and how many were refused. Any other error, or a crash, ends the process.
"""

import random
import resource
import sys
from pathlib import Path

from wasmtime import Module, WasmtimeError

from palyra.adapters.runtimes.wasm.compiler import make_engine
from palyra.adapters.runtimes.wasm.manifest import HostGrant, PluginLimits
from palyra.adapters.runtimes.wasm.module_call import ModuleCall, PluginProgram
from palyra.core.errors import PalyraError

ROOT = Path(__file__).parents[2]
LIMITS = PluginLimits(fuel=1_000_000, memory_mib=4)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (200, 200))
    seed = (ROOT / "examples/plugins/textstats/textstats.wasm").read_bytes()
    chance, ran, refused = random.Random(7), 0, 0
    for _ in range(int(sys.argv[1])):
        if try_out(mutated(seed, chance)):
            ran += 1
        else:
            refused += 1
    sys.stdout.write(f"{ran} {refused}\n")


def mutated(seed: bytes, chance: random.Random) -> bytes:
    body = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(8, len(body))
        body[place] = chance.randrange(256)
    return bytes(body[: chance.choice((len(body),) * 9 + (chance.randrange(len(body)),))])


def try_out(wasm: bytes) -> bool:
    try:
        compiled = bytes(Module(make_engine(), wasm).serialize())
    except WasmtimeError:
        return False
    program = PluginProgram(
        compiled=compiled, functions=("count",), function="count", grants=frozenset(HostGrant), limits=LIMITS
    )
    try:
        ModuleCall(program, b'{"text":"some words\\n"}', lambda text: None).run()
    except PalyraError:
        return True
    return True


if __name__ == "__main__":
    main()
