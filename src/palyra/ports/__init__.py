"""Protocols in our own words, one file per noun. Not: implementations."""
