"""MCP servers for tests: hostile and well-behaved stand-ins, and the paths of the real ones."""
