"""Vendors other than NVIDIA, on recordings."""
