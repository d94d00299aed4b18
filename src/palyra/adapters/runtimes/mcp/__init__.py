"""MCP servers: their processes and connections, and the tools, resources and prompts they offer."""
