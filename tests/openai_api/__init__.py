"""Real clients of other APIs against our real server."""
