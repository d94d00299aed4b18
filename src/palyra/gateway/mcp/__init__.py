"""The MCP server: sessions, prompts with progress, approvals, memory search and tapes, for clients of MCP."""
