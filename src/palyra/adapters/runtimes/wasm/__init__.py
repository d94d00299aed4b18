"""WASM plugins. Owns: modules that run with nothing but the memory, the fuel and the host functions they were granted."""
