"""The Agent Client Protocol: an editor's agent over standard input and output, with the daemon behind it."""
