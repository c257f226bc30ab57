"""The source `tandem`: topics of a live cluster as a table, or as a stream."""
