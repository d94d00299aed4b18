"""Access: who asks, what they may do, and whose permissions apply, for every protocol. Not: HTTP requests."""
