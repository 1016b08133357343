"""Trains: reads spec.toml, writes events, knows nothing of the program that shows it."""
