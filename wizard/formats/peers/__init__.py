"""One file per trainer: how its configuration is read, and how a Plan is written for it."""
