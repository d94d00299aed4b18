"""Tests of one adapter each: what only that adapter promises."""
