"""Channels, one file for each platform. A platform's library is imported at its first use, and its types end there."""
