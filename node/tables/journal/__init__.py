"""The tables of a fenced group: they travel in the log."""
