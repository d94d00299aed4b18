"""Telemetry: metrics for Prometheus, traces for OpenTelemetry, and log lines of runs that end badly.

Owns: what is measured, and its names. Does not own: which spans there are (core.telemetry), when it is asked (engine).
"""
