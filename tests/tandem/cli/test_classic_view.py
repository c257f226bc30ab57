from pathlib import Path

import msgspec
import pytest

from tandem.cli.classic_view import NodeReplication, classic_section, replication
from tandem.cli.formats import section_lines
from tandem.text_table import bare
from tandem.wire.request_headers import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from tests.tandem.cluster.fakes import fake_spec

SPEC = fake_spec(Path("/nowhere"), "m", "s")
SLAVE = HARuntimeInfo(
    master=False, ha_client_runtime_info=HAClientRuntimeInfo(master_addr="", max_offset=700)
)


def master(*slaves: HAConnectionRuntimeInfo) -> HARuntimeInfo:
    return HARuntimeInfo(
        master=True, master_commit_log_max_offset=1000, ha_connection_info=list(slaves)
    )


def slave_row(master_says: HARuntimeInfo | str, slave_says: HARuntimeInfo | str) -> NodeReplication:
    return replication(SPEC, {"m": master_says, "s": slave_says})[1]


def connection(**changes: object) -> HAConnectionRuntimeInfo:
    facts = {"addr": "127.0.0.2:4711", "slave_ack_offset": 900, "diff": 100, "in_sync": True}
    return HAConnectionRuntimeInfo(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_master_tells_where_its_log_ends() -> None:
    row = replication(SPEC, {"m": master(), "s": SLAVE})[0]
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
    rows = replication(SPEC, {"m": "refused", "s": "refused"})
    assert [row.state for row in rows] == ["down", "down"]


def test_the_table_has_a_row_for_each_node() -> None:
    rows = replication(SPEC, {"m": master(connection()), "s": SLAVE})
    lines = section_lines(classic_section(rows), None)
    assert [bare(line).split()[:2] for line in lines[1:]] == [["m", "MASTER"], ["s", "SLAVE"]]
    assert "reason" not in bare(lines[0])


def test_a_damaged_log_is_shown_with_the_remedy_whatever_else_is_said() -> None:
    damaged = "its log is damaged from 0 to 7 (flipped)"
    rows = replication(
        SPEC,
        {
            "m": msgspec.structs.replace(master(connection()), damage=damaged),
            "s": msgspec.structs.replace(SLAVE, damage=damaged),
        },
    )
    assert [row.damage for row in rows] == [damaged, damaged]
    assert rows[1].state == "in sync"
    _, *lines = section_lines(classic_section(rows), None)
    assert all("tandem log repair DIR --from" in bare(line) for line in lines)
