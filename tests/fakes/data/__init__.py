"""Data files with something wrong in them, each with what is to be said of it."""
