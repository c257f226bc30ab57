"""The commit log: records one after the other, and where they end."""
