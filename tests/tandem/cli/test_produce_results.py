import json

import pytest

from tandem.cli.formats import Format
from tandem.cli.produce_results import ResultPrinter, Sent, Tally, say_bad_line, sent_of
from tandem.client import (
    ConnectionCause,
    ConnectionLostError,
    MessageQueue,
    RouteCause,
    RouteNotFoundError,
    SendResult,
    SendStatus,
)
from tandem.wire.message import Message

QUEUE = MessageQueue("orders", "broker-a", 2)
REFUSED = ConnectionLostError(
    "127.0.0.1:1", ConnectionCause.UNREACHABLE, "refused", outcome_unknown=False
)
TWO = [Message("orders", b"one"), Message("orders", b"two")]


def stored(status: SendStatus = SendStatus.SEND_OK, reason: str = "") -> SendResult:
    return SendResult(status, "A,B", "offset id", QUEUE, 7, reason)


def test_a_stored_message_is_no_failure_and_its_reason_is_kept() -> None:
    tally = Tally()
    tally.take(stored(SendStatus.SLAVE_NOT_AVAILABLE, "no slave connected"), 3)
    assert (tally.failed_count, tally.total_count) == (0, 3)
    assert tally.reasons["SLAVE_NOT_AVAILABLE", "no slave connected"] == 3


def test_failures_are_counted_by_what_is_known_of_their_effect() -> None:
    tally = Tally()
    tally.take(ConnectionLostError("127.0.0.1:1", ConnectionCause.ENDED, "gone"), 1)
    tally.take(REFUSED, 2)
    assert tally.failed_count == 3
    assert str(tally) == "NOT_STORED 2, UNKNOWN 1"


def test_refusals_are_counted_all_in_all() -> None:
    tally = Tally()
    for count in (0, 1, 1, 3, 3):
        tally.refuse(count, "too long")
    assert (tally.failed_count, tally.total_count) == (3, 3)


def test_the_sum_is_a_line_and_a_line_for_each_reason_but_not_for_many() -> None:
    tally = Tally()
    assert tally.summary(1.0) == "nothing was sent"
    tally.take(stored(), 1)
    assert tally.summary(0.25) == "1 message in 0.25 s: SEND_OK 1"
    tally.take(stored(), 1999)
    assert tally.summary(0.5) == "2,000 messages in 0.50 s, 4,000/s: SEND_OK 2,000"
    tally.take(REFUSED, 2)
    lines = tally.summary(1.0).split("\n")
    assert lines[0].endswith(": NOT_STORED 2, SEND_OK 2,000")
    assert lines[1].startswith("NOT_STORED 2: connection to 127.0.0.1:1: refused")
    for number in range(9):
        tally.take(ConnectionLostError(f"127.0.0.1:{number}", ConnectionCause.ENDED, "gone"), 1)
    assert tally.summary(1.0).endswith("\nand 5 other reasons")


def test_what_to_do_if_nobody_answers_is_said_once() -> None:
    tally = Tally()
    for _ in range(2):
        tally.take(
            RouteNotFoundError(
                "t", RouteCause.NO_NAME_SERVER, "no name server answers (no)", may_pass=True
            ),
            1,
        )
    assert tally.summary(1.0).count("is the cluster up?") == 1


def test_the_messages_of_a_batch_have_offsets_and_ids_of_their_own() -> None:
    one, two = sent_of(TWO, stored())
    assert (one.queue_offset, one.msg_id) == (7, "A")
    assert (two.queue_offset, two.msg_id) == (8, "B")
    assert (two.broker, two.queue_id, two.status) == ("broker-a", 2, "SEND_OK")
    refused = sent_of(TWO, REFUSED)
    assert [each.status for each in refused] == ["NOT_STORED", "NOT_STORED"]
    assert "refused" in refused[0].reason


@pytest.mark.parametrize("output_format", Format)
def test_results_are_printed_in_every_format(
    output_format: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    printer = ResultPrinter(output_format)
    printer.take(sent_of(TWO, stored()))
    at_once = capsys.readouterr().out
    printer.end()
    out = at_once + capsys.readouterr().out
    assert bool(at_once) == (output_format in (Format.TEXT, Format.JSONL))
    assert out.count("SEND_OK") == 2
    if output_format is Format.JSON:
        assert [each["msg_id"] for each in json.loads(out)] == ["A", "B"]


def test_what_is_wrong_with_a_line_is_said_with_its_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_bad_line(17, "no \x1b")
    assert capsys.readouterr().err == "line 17: no \\x1b\n"
    assert Sent(status="SEND_OK", topic="t").reason == ""


def test_what_was_in_flight_at_the_end_is_in_the_sum() -> None:
    tally = Tally()
    tally.leave(3)
    assert tally.summary(1.0) == "0 messages in 1.00 s: no answer\nand 3 in flight, outcome unknown"
    tally.take(stored(), 2)
    assert tally.summary(1.0).endswith("SEND_OK 2\nand 3 in flight, outcome unknown")
    assert (tally.failed_count, tally.total_count) == (3, 2)
