"""Links, islands and what measures them."""
