import pytest

from tandem.client.errors import BrokerError, ConnectionLostError
from tandem.spark.live.pull_answer import Meaning, judge
from tandem.spark.live.pull_window import Pull
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader
from tandem.wire.response_code import ResponseCode

PULL = Pull(0, 100, 132)
SUCCESS, NOT_FOUND = ResponseCode.SUCCESS.value, ResponseCode.PULL_NOT_FOUND.value
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY.value, ResponseCode.PULL_OFFSET_MOVED.value


def answer(
    code: int, next_offset: int, lowest: int = 0, highest: int = 1000, body: bytes = b""
) -> RemotingCommand:
    ext = PullMessageResponseHeader(0, next_offset, lowest, highest)
    return RemotingCommand(code, ext=ext, body=body)


@pytest.mark.parametrize(
    ("given", "meaning", "next_offset"),
    [
        (answer(SUCCESS, 132, body=b"x"), Meaning.FOUND, 132),
        (answer(SUCCESS, 101, body=b"x"), Meaning.FOUND, 101),
        (answer(RETRY, 120), Meaning.GONE, 120),
        # What RocketMQ's slave says while its master is dead.
        (answer(RETRY, 100), Meaning.LATER, 100),
        (answer(RETRY, 0, highest=0), Meaning.LATER, 100),
        (answer(MOVED, 110, lowest=110), Meaning.GONE, 110),
        (answer(MOVED, 90, highest=90), Meaning.BEYOND, 100),
        (answer(MOVED, 0, highest=0), Meaning.BEYOND, 100),
        # An operator has moved the group.
        (answer(MOVED, 5), Meaning.LATER, 100),
        (answer(NOT_FOUND, 100, highest=100), Meaning.BEYOND, 100),
        (answer(NOT_FOUND, 100, highest=101), Meaning.LATER, 100),
    ],
)
def test_what_an_answer_means(given: RemotingCommand, meaning: Meaning, next_offset: int) -> None:
    verdict = judge(given, PULL, "h:1")
    assert (verdict.meaning, verdict.next_offset) == (meaning, next_offset)


def test_a_refusal_is_an_error_of_the_broker() -> None:
    with pytest.raises(BrokerError):
        judge(RemotingCommand(ResponseCode.NO_PERMISSION.value), PULL, "h:1")


@pytest.mark.parametrize(
    "given",
    [
        answer(SUCCESS, 132),
        answer(SUCCESS, 100, body=b"x"),
        answer(SUCCESS, 99, body=b"x"),
        answer(SUCCESS, -1, body=b"x"),
        RemotingCommand(SUCCESS, body=b"x"),
        RemotingCommand(SUCCESS, ext={"nextBeginOffset": "x"}, body=b"x"),
    ],
)
def test_what_makes_no_sense_ends_the_connection(given: RemotingCommand) -> None:
    with pytest.raises(ConnectionLostError):
        judge(given, PULL, "h:1")
