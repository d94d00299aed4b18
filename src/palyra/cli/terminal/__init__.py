"""The terminal: input, colours, tables, cards and live runs. Not: commands, nor speaking to the daemon (client)."""
