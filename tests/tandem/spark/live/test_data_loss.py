import logging

import pytest

from tandem.client.results import MessageQueue
from tandem.spark.errors import DataLossError, LossCause
from tandem.spark.live.data_loss import DataLoss, report_loss

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
