"""The wizard as questions, a line each: for screen readers, and where nothing can be drawn."""
