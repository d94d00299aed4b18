"""Pure rules: values in, values out.

Does not own: I/O, clocks, randomness, asyncio or logging. Time, ids and bytes arrive as arguments.
"""
