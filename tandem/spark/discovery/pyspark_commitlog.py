"""Lets `spark.read.format("commitlog")` work without `register`."""

from contextlib import suppress

with suppress(ImportError):  # without pyspark there is no source
    from tandem.spark.commitlog.registered import RegisteredCommitLog as DefaultSource

__all__ = ["DefaultSource"]
