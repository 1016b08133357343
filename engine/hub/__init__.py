"""Hubs: models and data sets by name become local folders, pinned, resumed and checked."""
