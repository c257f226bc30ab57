"""Lets `spark.read.format("tandem")` work without `register`."""

from contextlib import suppress

with suppress(ImportError):  # without pyspark there is no source
    from tandem.spark.source import TandemDataSource as DefaultSource

__all__ = ["DefaultSource"]
