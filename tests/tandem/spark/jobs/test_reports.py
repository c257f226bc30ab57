import logging

import pytest

from tandem.spark.jobs.reports import log_metrics, silent


def test_metrics_are_pairs_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    silent("words")
    with caplog.at_level(logging.INFO, "tandem.spark.jobs"):
        log_metrics("archive", "archived", rows=3, group="broker-a")
    assert caplog.messages == ["archive: archived rows=3 group=broker-a"]
