"""Stores of the journal, one package per database."""
