"""One writer per medium."""
