"""Anchors: further places where the heads of signed checkpoints are written."""
