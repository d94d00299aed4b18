"""Files that survive a crash and are ours alone. Other adapters may import this package, as they may `adapters.net`.

Owns: writing files durably and whole, reading them without following links, locks, and stamps.
Does not own: what is in a file, nor files of a workspace, which are reached by descriptors of folders (adapters.tools).
"""
