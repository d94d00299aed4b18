"""WASM plugins: modules that have nothing but the memory, the fuel and the host functions they were granted."""
