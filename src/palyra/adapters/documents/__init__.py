"""Documents of a workspace that the daemon itself keeps up to date, as files."""
