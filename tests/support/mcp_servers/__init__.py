"""MCP servers for tests: hostile and well-behaved stand-ins, and where the real ones are."""
