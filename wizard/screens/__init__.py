"""Facts, answers and plans → one page each → the value a page is left with."""
