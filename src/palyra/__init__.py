"""Palyra: a self-hosted daemon that runs AI agents whose every effect is judged, recorded, provable and resumable."""

__version__ = "0.1.0"
