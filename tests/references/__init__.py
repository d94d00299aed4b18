"""Tests of what references are read by, and of resolving them."""
