"""Performs channels: takes messages in, answers commands, pairs accounts, and sends what waits in the outbox.

Does not own: rules (core.channels), platforms (adapters.channels), the services behind API and CLI (engine.api.channels).
"""
