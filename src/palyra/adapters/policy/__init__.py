"""Policies: which calls may run, which ask, and which are refused."""
