"""Files that survive a crash and are ours alone. Other adapters may import this package, as they may `adapters.net`.

Owns: writing files durably and whole, reading them without following links, locks, stamps, and the boundary of a
workspace with its ignore files.
Does not own: what is in a file, nor what a tool does with it (adapters.tools).
"""
