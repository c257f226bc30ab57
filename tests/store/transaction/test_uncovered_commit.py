"""A log that ends with a commit lacks the op; no other log does."""

import logging

import msgspec
import pytest

from node.simulated.disk import SimulatedDisk
from store.delayed.schedule_message_service import delay_rewrite
from store.results import PutMessage
from store.transaction.half_message import committed_message, half_message, op_message
from store.transaction.uncovered_commit import missing_op
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import decode_properties, encode_properties
from tests.store.store_world import STORE_HOST, a_message, log_messages, open_store, put
from tests.support.logged import logged

NOW_MS = 1_700_000_000_000


def prepared(number: int, **more: str) -> PutMessage:
    message = a_message(number)
    own = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": f"U{number}"}
    properties = encode_properties(decode_properties(message.properties) | own | more)
    return msgspec.structs.replace(message, properties=properties)


def commit_of(half: MessageExt) -> PutMessage:
    return committed_message(
        half, half.physical_offset, lambda message: delay_rewrite(message, DelayLevels())
    )


class Log:
    def __init__(self, *messages: PutMessage) -> None:
        self.store = open_store(SimulatedDisk())
        self.put(*messages)

    def put(self, *messages: PutMessage) -> None:
        for message in messages:
            assert self.store.puts.put_message(message, hooks=False).status.is_stored

    def messages(self) -> list[MessageExt]:
        return log_messages(self.store)

    def missing(self) -> PutMessage | None:
        return missing_op(self.store.whole_log, self.store.last_record_offset, NOW_MS, STORE_HOST)


@pytest.mark.parametrize("delay", [{}, {"DELAY": "2"}])
def test_a_commit_at_the_end_lacks_its_op(delay: dict[str, str]) -> None:
    log = Log(half_message(prepared(0)), half_message(prepared(1, **delay)))
    log.put(commit_of(log.messages()[1]))
    assert log.missing() == op_message([1], NOW_MS, STORE_HOST)


def test_with_its_op_or_anything_else_behind_it_nothing_is_missing() -> None:
    log = Log(half_message(prepared(0)))
    log.put(commit_of(log.messages()[0]), op_message([0], NOW_MS, STORE_HOST))
    assert log.missing() is None


@pytest.mark.parametrize("last", [a_message(0), half_message(prepared(0))])
def test_a_log_that_ends_with_another_message_lacks_nothing(last: PutMessage) -> None:
    assert Log(last).missing() is None


def test_an_empty_log_lacks_nothing() -> None:
    assert Log().missing() is None


def test_a_delivered_message_that_names_the_half_of_another_lacks_nothing() -> None:
    """Place 0 stands in every record that names no half."""
    log = Log(half_message(prepared(0)), half_message(prepared(1)))
    delivered = msgspec.structs.replace(commit_of(log.messages()[1]), prepared_transaction_offset=0)
    log.put(delivered)
    assert log.missing() is None


def test_a_commit_of_a_client_that_names_no_half_lacks_nothing() -> None:
    log = Log()
    put(log.store, a_message(0))
    log.put(msgspec.structs.replace(a_message(1), sys_flag=8))
    assert log.missing() is None


def damage(log: Log, half: MessageExt, at: int) -> None:
    file = log.store.commit_log.files.find_by_offset(half.physical_offset)
    assert file is not None
    file.buffer[half.physical_offset + at - file.file_from_offset] ^= 1


@pytest.mark.parametrize("at", [3, 5, 30, 35, 45, 89])
def test_the_op_of_a_half_that_is_damaged_is_put_by_its_number(
    at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A length, the magic, its place, when it was born, and its body."""
    log = Log(half_message(prepared(0)), half_message(prepared(1)))
    half = log.messages()[1]
    log.put(commit_of(half))
    damage(log, half, at)
    assert log.missing() == op_message([1], NOW_MS, STORE_HOST)
    (line,) = logged(caplog, "store.transaction.uncovered_commit")
    assert line[0] == half.physical_offset


def test_which_half_is_at_place_zero_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(half_message(prepared(0)))
    half = log.messages()[0]
    log.put(commit_of(half))
    damage(log, half, 100)
    assert log.missing() is None
    assert len(logged(caplog, "store.transaction.uncovered_commit", logging.ERROR)) == 1


def test_a_last_record_that_is_known_to_be_bad_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log(half_message(prepared(0)), half_message(prepared(1)))
    log.put(commit_of(log.messages()[1]))
    last = log.store.last_record_offset
    log.store.commit_log.damage.note(last, last + 10, "a test")
    assert log.missing() is None
    assert logged(caplog, "store.transaction.uncovered_commit", logging.ERROR) == [(last, "a test")]
