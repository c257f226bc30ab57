"""Ops wait for company, but not for long; a refused one is tried again."""

from store.results import PutMessage, PutMessageResult, PutMessageStatus
from store.transaction.op_batches import RETRY_MS, OpBatches
from store.transaction.transaction import TransactionSettings
from tandem.wire.message import Host

T0 = 1_700_000_000_000
INTERVAL_MS = 3000


class Ops:
    """Batches of 20 bytes, and what was put of them."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.status = PutMessageStatus.PUT_OK
        settings = TransactionSettings(
            transaction_op_msg_max_size=20, transaction_op_batch_interval_ms=INTERVAL_MS
        )
        self.batches = OpBatches(self._put, Host("127.0.0.1", 10911), settings)

    def _put(self, message: PutMessage) -> PutMessageResult:
        if self.status.is_stored:
            self.bodies.append(message.body.decode())
        return PutMessageResult(self.status)


def test_without_ops_there_is_nothing_to_come_back_for() -> None:
    ops = Ops()
    assert ops.batches.write(T0) is None
    assert ops.batches.write(T0, at_once=True) is None
    assert ops.bodies == []


def test_ops_are_written_together_some_time_after_the_first() -> None:
    ops = Ops()
    ops.batches.add(7, T0)
    ops.batches.add(8, T0 + 2000)
    assert ops.batches.write(T0 + 2999) == T0 + INTERVAL_MS
    assert ops.bodies == []
    assert ops.batches.write(T0 + 3000) is None
    assert ops.bodies == ["7,8,"]


def test_ops_that_fill_a_message_are_written_at_once_and_in_several() -> None:
    ops = Ops()
    for half in range(100, 107):
        ops.batches.add(half, T0)
    assert ops.batches.write(T0) is None
    assert ops.bodies == ["100,101,102,103,104,", "105,106,"]


def test_a_stop_writes_all_there_is() -> None:
    ops = Ops()
    ops.batches.add(7, T0)
    assert ops.batches.write(T0, at_once=True) is None
    assert ops.bodies == ["7,"]


def test_a_refused_op_is_written_later() -> None:
    ops = Ops()
    ops.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    ops.batches.add(7, T0)
    assert ops.batches.write(T0 + 3000) == T0 + 3000 + RETRY_MS
    assert ops.batches.write(T0 + 3001) == T0 + 3000 + RETRY_MS
    ops.status = PutMessageStatus.PUT_OK
    assert ops.batches.write(T0 + 3000 + RETRY_MS) is None
    assert ops.bodies == ["7,"]
