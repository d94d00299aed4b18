"""References in what people write: `@file:notes.md`, `@diff`, `@url:https://example.com`.

Owns: finding them in a text, their limits, the tool call each stands for, and how their content is shown to a model.
Does not own: reading content (adapters.references), judging (engine.session.reference_judge).
"""
