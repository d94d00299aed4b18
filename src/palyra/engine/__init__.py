"""Performs what core decides. Owns: time, concurrency and order of effects. Not: rules (core), translations (adapters)."""
