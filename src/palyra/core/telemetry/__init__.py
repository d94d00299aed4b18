"""What an operator may know of runs without reading them: spans of time, with names and counts, never with text."""
