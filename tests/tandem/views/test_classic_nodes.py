import msgspec
import pytest

from tandem.views.classic_nodes import NodeReplication, replication
from tandem.wire.request_headers import (
    HAClientRuntimeInfo,
    HARuntimeInfo,
)
from tests.tandem.views.classic_samples import NODES, SLAVE, connection, master


def slave_row(master_says: HARuntimeInfo | str, slave_says: HARuntimeInfo | str) -> NodeReplication:
    return replication(NODES, {"m": master_says, "s": slave_says})[1]


def test_the_master_tells_where_its_log_ends() -> None:
    row = replication(NODES, {"m": master(), "s": SLAVE})[0]
    assert (row.state, row.log_end, row.lag_bytes) == ("master", 1000, -1)


@pytest.mark.parametrize("facts", [{}, {"name": "s", "addr": "10.0.0.9:1"}])
def test_a_connected_slave_is_known_by_name_or_address(facts: dict[str, object]) -> None:
    row = slave_row(master(connection(**facts)), SLAVE)
    assert (row.state, row.log_end, row.lag_bytes, row.reason) == ("in sync", 900, 100, "")


def test_a_slave_that_is_behind_has_the_masters_reason() -> None:
    behind = connection(in_sync=False, reason="is 312 MiB behind, limit 256 MiB")
    row = slave_row(master(behind), SLAVE)
    assert (row.state, row.reason) == ("behind", "is 312 MiB behind, limit 256 MiB")


def test_a_slave_that_answers_but_is_not_connected_says_what_it_holds() -> None:
    row = slave_row(master(), SLAVE)
    assert (row.state, row.log_end, row.lag_bytes) == ("behind", 700, 300)
    assert row.reason == "not connected to its master"
    longer = msgspec.structs.replace(
        SLAVE, ha_client_runtime_info=HAClientRuntimeInfo(max_offset=1001)
    )
    assert slave_row(master(), longer).lag_bytes == -1


def test_a_slave_that_nobody_knows_of_is_down() -> None:
    row = slave_row(master(), "connection refused")
    assert (row.state, row.reason, row.log_end) == ("down", "connection refused", -1)


def test_without_its_master_a_slave_is_alone() -> None:
    row = slave_row("connection refused", SLAVE)
    assert (row.state, row.log_end, row.lag_bytes) == ("alone", 700, -1)


def test_without_any_answer_all_are_down() -> None:
    rows = replication(NODES, {"m": "refused", "s": "refused"})
    assert [row.state for row in rows] == ["down", "down"]


def test_a_slave_whose_master_nobody_knows_is_alone() -> None:
    (row,) = replication(NODES[1:], {"s": SLAVE})
    assert (row.state, row.log_end) == ("alone", 700)
