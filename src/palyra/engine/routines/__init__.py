"""Performs routines: the scheduler that finds due times, and the job that starts their runs.

Does not own: rules (core.routines), nor the services behind API and CLI (engine.api.routines).
"""
