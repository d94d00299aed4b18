"""Readers of documents: the text of plain files, pages, JSON, tables and PDF."""
