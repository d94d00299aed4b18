"""The context of a model call: messages, the window over a tape, and what of it is sent.

Does not own: providers' wire forms (adapters.providers), counting tokens (ports.tokens_count).
"""
