"""The rules of channels: who is let in, which session a message belongs to, and how answers go out.

Does not own: platforms (adapters.channels), sending and receiving (engine.channels).
"""
