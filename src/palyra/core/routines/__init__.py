"""Routines: prompts that run on a schedule. Owns: the rules of schedules, missed times and overlapping runs.

Does not own: storing routines (core.writes, ports.routines), nor performing them (engine.routines).
"""
