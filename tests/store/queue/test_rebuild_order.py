import logging

import pytest

from node.simulated.disk import SimulatedDisk
from store.queue.rebuild_order import RebuildOrder
from tandem.wire.store_layout import REBUILD_ORDER_FILE
from tests.support.logged import logged
from tests.support.reasons import words

PATH = f"/store/{REBUILD_ORDER_FILE}"


def test_an_order_stands_until_it_is_carried_out_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    order = RebuildOrder(disk, "/store")
    assert order.reason is None
    order.carried_out()
    order.give("first")
    order.give("second")
    assert len(caplog.records) == 1
    again = RebuildOrder(disk.crashed(), "/store")
    assert again.reason == "first"
    order = RebuildOrder(disk, "/store")
    order.carried_out()
    assert order.reason is None
    assert not disk.exists(PATH)


def test_one_that_cannot_be_read_is_an_order_and_one_that_cannot_be_written_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    disk.replace(PATH, b'"x')
    assert PATH in words(RebuildOrder(disk, "/store").reason)
    disk.remove(PATH)
    disk.writes_fail = True
    order = RebuildOrder(disk, "/store")
    order.give("first")
    assert order.reason == "first"
    assert PATH in [line[0] for line in logged(caplog, "store.queue.rebuild_order", logging.ERROR)]
