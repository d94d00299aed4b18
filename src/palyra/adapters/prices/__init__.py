"""Prices of models."""
