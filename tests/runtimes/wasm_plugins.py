"""Plugins for tests. Owns: putting a module with a manifest on a shelf, and calling it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from wasmtime import wat2wasm

from palyra.adapters.runtimes.wasm.plugin_folder import open_plugin
from palyra.adapters.runtimes.wasm.runtime import WasmRuntime
from palyra.adapters.runtimes.wasm.tool import PluginTool
from palyra.adapters.schema import JsonSchemaCheck

SCHEMA_ERRORS = JsonSchemaCheck().schema_errors
ANSWER_AT = 2048
MANY = 1_000_000_000_000


def module(*functions: str, imports: str = "", memory: str = '(memory (export "memory") 1)', start: str = "") -> bytes:
    """With `f` of these bodies; arguments lie at 4096, and what is stored at ANSWER_AT can be answered with $say."""
    body = "\n".join(functions)
    return bytes(
        wat2wasm(
            f"""(module {imports} {memory}
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func $say (param $len i32) (result i64)
    (i64.or (i64.const {ANSWER_AT << 32}) (i64.extend_i32_u (local.get $len))))
  {body} {start})"""
        )
    )


def function(body: str, name: str = "f") -> str:
    return f'(func (export "{name}") (param $ptr i32) (param $len i32) (result i64) {body})'


ECHO = function(
    "(i64.or (i64.shl (i64.extend_i32_u (local.get $ptr)) (i64.const 32)) (i64.extend_i32_u (local.get $len)))"
)
SPIN = function("(loop (br 0)) (unreachable)")


def manifest(
    wasm: bytes, name: str = "p", output: str = "text", functions: Sequence[str] = ("f",), **top: object
) -> str:
    """`limits` and `capabilities` as TOML."""
    tables = "\n".join(
        f'[[function]]\nname = "{each}"\ndescription = "Does {each}."\noutput = "{output}"\ninput_schema = {{ type = "object" }}'
        for each in functions
    )
    return (
        f'name = "{name}"\nversion = "1.0"\ndescription = "A try."\nwasm = "p.wasm"\n'
        f'sha256 = "{hashlib.sha256(wasm).hexdigest()}"\n'
        f"capabilities = {top.get('capabilities', '[]')}\nlimits = {{ {top.get('limits', '')} }}\n{tables}\n"
    )


def shelve(plugins: Path, wasm: bytes, text: str | None = None, name: str = "p") -> Path:
    folder = plugins / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "p.wasm").write_bytes(wasm)
    (folder / "plugin.toml").write_text(manifest(wasm, name) if text is None else text)
    return folder


class Bench:
    """One runtime and a shelf of plugins, each with a name of its own."""

    def __init__(self, root: Path) -> None:
        self.runtime = WasmRuntime()
        self._root = root
        self._count = 0

    def tool(self, wasm: bytes, output: str = "text", **top: object) -> PluginTool:
        self._count += 1
        name = f"p{self._count}"
        folder = shelve(self._root, wasm, manifest(wasm, name, output, ("f",), **top), name)
        plugin = open_plugin(folder, SCHEMA_ERRORS)
        return PluginTool(plugin, plugin.manifest.function[0], self.runtime)
