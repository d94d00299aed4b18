"""Tools that run inside the daemon, one file each. Add a file, then one line in app.py."""
