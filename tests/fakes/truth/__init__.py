"""What the probe has to find on each recorded machine, field by field."""
