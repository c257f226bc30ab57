"""A query that Spark gave up before it had begun is started again, and no other."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from tests.support.patient_streams import NOT_IN_TIME, patient

LATE = StreamingQueryException("\n".join(NOT_IN_TIME))
BEGUN = StreamingQueryException(f"{NOT_IN_TIME[0]}\nCurrent State: ACTIVE")


class Query:
    """Ends as `ends` say, one after the other; an end is an error or what waiting returns."""

    def __init__(self, *ends: object) -> None:
        self._jsq: Any = 0
        self.ends = [*ends]
        self.start_again = lambda: SimpleNamespace(_jsq=self._jsq + 1)

    def wait(self) -> object:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def test_a_query_that_was_given_up_is_started_until_it_begins() -> None:
    query = Query(LATE, LATE, "the end")
    assert patient(Query.wait)(query) == "the end"
    assert query._jsq == 2


def test_one_that_had_begun_ends_as_it_does() -> None:
    query = Query(LATE, BEGUN, "the end")
    with pytest.raises(StreamingQueryException) as caught:
        patient(Query.wait)(query)
    assert caught.value is BEGUN
    assert query._jsq == 1
