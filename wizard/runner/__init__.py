"""Files → run folder → process → events."""
