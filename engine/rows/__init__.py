"""Rows of data sets: every file type and format, each row with its line; no training stack."""
