"""The archive as a table of Apache Iceberg: its data files by reference, one snapshot a publish."""
