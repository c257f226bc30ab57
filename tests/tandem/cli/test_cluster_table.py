import os
from pathlib import Path

import pytest

from tandem.cli.cluster_table import (
    NodeFacts,
    _duration,
    disk_bytes,
    node_facts,
    nodes_section,
    uptime_seconds,
)
from tandem.cli.formats import Format, write
from tandem.cluster.new_file import NewCluster, loopback_addresses, new_file_text
from tandem.cluster.node_lifecycle import NodeState, NodeStatus
from tandem.cluster.spec import example_text, read_spec


def status_of(name: str, pid: int | None, last_exit: str = "") -> NodeStatus:
    state = NodeState.RUNNING if pid else NodeState.FAILED
    return NodeStatus(
        name=name,
        role="MASTER",
        address="127.0.0.1:10911",
        state=state,
        pid=pid,
        starts_count=2,
        last_exit=last_exit,
    )


def test_a_process_is_up_since_its_start() -> None:
    own = uptime_seconds(os.getpid())
    init = uptime_seconds(1)
    assert own is not None
    assert init is not None
    assert 0 <= own <= init + 1
    assert uptime_seconds(2**22 + 1) is None


def test_what_files_take_on_the_disk_is_counted_once(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path / "nothing") == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(10_000_000)
    taken = disk_bytes(tmp_path)
    assert 100_000 <= taken < 1_000_000
    os.link(tmp_path / "a" / "file", tmp_path / "linked")
    assert disk_bytes(tmp_path, tmp_path / "a") == taken


def test_what_is_known_of_a_node_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(new_file_text(example_text(), NewCluster(addresses=loopback_addresses(1))))
    (facts,) = node_facts([status_of("broker-a-0", os.getpid())], read_spec(file))
    assert (facts.name_server_port, facts.replication_port) == (9876, 10913)
    assert facts.disk_bytes == 0
    assert facts.uptime_seconds is not None
    write(Format.TABLE, nodes_section([facts]))
    out = capsys.readouterr().out
    assert "broker-a-0" in out
    assert "last exit" not in out


def test_without_the_file_the_rest_is_shown_and_how_a_node_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = node_facts([status_of("broker-a-0", None, "ended by SIGKILL")], None)
    write(Format.TABLE, nodes_section(facts))
    out = capsys.readouterr().out
    assert "ended by SIGKILL" in out
    assert "FAILED" in out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, None),
        (0, "0 s"),
        (59, "59 s"),
        (125, "2 min 5 s"),
        (7_200, "2 h 0 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_durations_are_in_their_two_largest_units(seconds: int | None, text: str | None) -> None:
    assert _duration(seconds) == text


def test_json_has_everything() -> None:
    assert set(NodeFacts.__struct_fields__) >= {"node", "role", "state", "pid", "disk_bytes"}
