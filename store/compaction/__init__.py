"""Compaction topics: the newest message of each key, in logs of their own."""
