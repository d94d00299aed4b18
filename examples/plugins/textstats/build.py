"""Builds textstats.wasm from textstats.wat. Needs only the Python package wasmtime."""

from pathlib import Path

from wasmtime import wat2wasm

HERE = Path(__file__).parent


def build() -> bytes:
    return bytes(wat2wasm((HERE / "textstats.wat").read_text(encoding="utf-8")))


if __name__ == "__main__":
    (HERE / "textstats.wasm").write_bytes(build())
