"""Files of fixed size in a row, mapped into memory, and how far they are on disk."""
