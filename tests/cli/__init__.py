"""Tests of the command palyra."""
