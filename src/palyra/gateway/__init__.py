"""The gateway: protocols over the engine's services.

Owns: who asks, what is asked, and the form of the answer.
Does not own: any rule of a run (core, engine).
"""
