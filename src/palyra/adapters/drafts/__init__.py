"""Drafts on disk: the upper folders of overlays, read, sealed, shown, applied and put back."""
