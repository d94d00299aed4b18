"""Runtimes of tools that are not ours: shell, WASM and MCP."""
