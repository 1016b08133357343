"""One file per method; each reads top to bottom and stands alone."""
