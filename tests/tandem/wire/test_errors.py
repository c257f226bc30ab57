import pickle

import pytest

from tandem.wire.compression import CompressionError, CompressionFault
from tandem.wire.errors import (
    ArgumentError,
    FrameTooLargeError,
    IllegalPropertyError,
    MalformedFrameError,
    MalformedMessageError,
    WireError,
)
from tandem.wire.group_state import MalformedGroupRecordError


@pytest.mark.parametrize(
    "error",
    [
        FrameTooLargeError("frame", 20, 10),
        MalformedFrameError("too many", code=10, limit=3),
        MalformedMessageError("it is cut", 136),
        IllegalPropertyError("it is no number", "DELAY"),
        CompressionError("it is cut", CompressionFault.DAMAGED),
        MalformedGroupRecordError("delete it", "/k", "NodeRecord"),
    ],
)
def test_the_attributes_of_an_error_survive_pickle(error: WireError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_facts_are_attributes_and_in_the_text() -> None:
    large = FrameTooLargeError("frame", 20, 10)
    assert (large.part, large.size, large.limit) == ("frame", 20, 10)
    assert str(large) == "frame of 20 bytes; the limit is 10 bytes"
    error = MalformedFrameError("no topic", code=10, field="topic")
    assert (error.code, error.field) == (10, "topic")


def test_an_argument_that_is_wrong_is_a_value_error_with_its_name() -> None:
    error = ArgumentError("tags and sql cannot be given both", "tags", "sql")
    assert isinstance(error, ValueError)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert (str(each), each.names) == ("tags and sql cannot be given both", ("tags", "sql"))
