import logging

import msgspec
import pytest

from tandem.client.results import MessageQueue
from tandem.spark.errors import DataLossError, LossCause
from tandem.spark.live.data_loss import DataLoss, log_losses, report_loss, report_lost_queues
from tests.support.logged import logged

LOSS = DataLoss(MessageQueue("orders", "broker-a", 3), 5, 9, "deleted", LossCause.DELETED)


def test_a_loss_names_its_place_its_reason_and_the_remedy() -> None:
    with pytest.raises(DataLossError) as raised:
        report_loss(LOSS, fail=True)
    for word in ("5 to 9", "queue 3", "'orders'", "broker-a", "deleted", "failOnDataLoss=false"):
        assert word in str(raised.value)


def test_where_it_is_no_error_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        report_loss(LOSS, fail=False)
    assert "5 to 9" in caplog.text


def losses(count: int) -> list[DataLoss]:
    return [
        msgspec.structs.replace(LOSS, queue=MessageQueue("orders", "broker-a", number))
        for number in range(count)
    ]


def test_queues_that_are_lost_are_one_line_however_many(caplog: pytest.LogCaptureFixture) -> None:
    report_lost_queues(losses(1000), fail=False)
    report_lost_queues([], fail=False)
    report_lost_queues([], fail=True)
    ((count, shown, more),) = logged(caplog, "tandem.spark.live.data_loss")
    assert count == 1000
    assert "orders broker-a 4 " in str(shown)
    assert "995" in str(more)
    with pytest.raises(DataLossError) as raised:
        report_lost_queues(losses(3), fail=True)
    assert raised.value.cause is LossCause.DELETED


def test_what_follows_one_another_is_one_loss(caplog: pytest.LogCaptureFixture) -> None:
    def loss(start: int, end: int, cause: LossCause = LossCause.DELETED) -> DataLoss:
        return msgspec.structs.replace(LOSS, start=start, end=end, cause=cause)

    log_losses([loss(32, 64), loss(0, 32), loss(64, 70, LossCause.CUT), loss(80, 90)])
    lines = logged(caplog, "tandem.spark.live.data_loss")
    assert [(each.start, each.end) for (each,) in lines] == [(0, 64), (64, 70), (80, 90)]  # type: ignore[attr-defined]
