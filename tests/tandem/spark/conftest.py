from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session for all tests: it takes seconds to start."""
    from tandem.spark.session import local_session  # noqa: PLC0415 - pyspark only where it is used

    session = local_session(app_name="tests", master="local[2]")
    yield session
    session.stop()
