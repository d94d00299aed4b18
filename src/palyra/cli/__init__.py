"""The command `palyra`, one file per command group. Not: rules or wiring."""
