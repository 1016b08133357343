"""Parts used by more than one screen: told values, they post messages."""
