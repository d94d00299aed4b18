"""Skills: folders with written procedures, which are read, hashed and marked here.

Does not own: what an open skill narrows (core.skills).
"""
