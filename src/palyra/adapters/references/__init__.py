"""What references are read by: files and folders of a workspace, changes of a repository, and pages.

Owns: reading within limits, and refusing files that hold keys.
Does not own: who may read (engine), nor what is shown (core.references).
"""
