import pickle

from tandem.wire.errors import (
    ArgumentError,
    FrameTooLargeError,
    MalformedFrameError,
    MalformedMessageError,
    WireError,
)


def test_all_are_the_peers_fault() -> None:
    for error in (FrameTooLargeError, MalformedFrameError, MalformedMessageError):
        assert issubclass(error, WireError)


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
