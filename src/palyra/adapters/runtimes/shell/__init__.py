"""The shell runtime: commands in a sandbox, and processes that go on behind a call. Not: judging a text (core.shell)."""
