"""The OpenAI-compatible API: `/v1/models`, `/v1/chat/completions`, `/v1/responses` and `/v1/embeddings`.

A request becomes a run, and a run's frames become chunks or events. Runs, approvals and sessions stay the engine's.
"""
