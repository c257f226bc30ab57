from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session for all tests: it takes seconds to start."""
    from tandem.spark.session import (  # noqa: PLC0415 - pyspark only where it is used
        SHORT_LIVED,
        local_session,
    )
    from tests.support.patient_streams import patient_streams  # noqa: PLC0415 - likewise

    session = local_session(app_name="tests", master="local[2]", java_options=SHORT_LIVED)
    with patient_streams():
        yield session
    session.stop()
