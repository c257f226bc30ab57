"""Parquet archives of commit logs: what is in them, how they are written, verified and read."""
