"""Pure rules: values in, values out. Not: I/O, clocks, randomness, asyncio or logging."""
