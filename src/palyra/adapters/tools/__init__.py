"""Tools that run inside the daemon, one file each. A new tool is a file here and one line in app/tools.py."""
