import json
from pathlib import Path

import msgspec
import pytest
import typer

from tandem.cli import cluster_elsewhere
from tandem.cli.cluster_elsewhere import (
    RUNNING,
    SILENT,
    elsewhere_facts,
    print_status,
    run_by_themselves,
)
from tandem.cli.formats import Format
from tandem.cluster.spec import ClusterSpec
from tandem.views.cluster_look import ClusterLook
from tandem.views.group_view import GroupView, NodeView, Switch
from tests.tandem.cluster.fakes import fake_spec, held

ELSEWHERE = "198.51.100.7"  # of RFC 5737: no machine has it


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    """Node `a` is of this machine, `b` of another."""
    made = fake_spec(tmp_path, "a", "b")
    first, second = made.nodes
    return msgspec.structs.replace(
        made, nodes=[first, msgspec.structs.replace(second, address=ELSEWHERE)]
    )


def seen(**roles: str) -> ClusterLook:
    nodes = [NodeView(node=name, address="", role=role) for name, role in roles.items()]
    group = GroupView(
        group="broker-a",
        epoch=1,
        master="a",
        takes_messages=True,
        reasons=[],
        min_isr=1,
        ack_level="written",
        in_sync=["a"],
        last_switch=Switch(),
        nodes=nodes,
    )
    return ClusterLook([], [group])


def test_of_nodes_of_this_machine_more_is_known_than_of_others(spec: ClusterSpec) -> None:
    with held(spec, "a") as pid:
        here, there = elsewhere_facts(spec, seen(a="MASTER", b="FOLLOWER"))
    assert (here.role, here.state, here.pid) == ("MASTER", RUNNING, pid)
    assert here.disk_bytes is not None
    assert (there.role, there.state, there.pid) == ("FOLLOWER", RUNNING, None)
    assert there.disk_bytes is None


def test_one_that_does_not_answer_is_silent_and_its_role_that_of_the_file(
    spec: ClusterSpec,
) -> None:
    _, silent = elsewhere_facts(spec, seen(a="MASTER", b="down"))
    assert (silent.role, silent.state) == (spec.nodes[1].role, SILENT)


def test_who_runs_by_itself_is_held_here_or_of_another_machine(tmp_path: Path) -> None:
    local = fake_spec(tmp_path, "a")
    assert not run_by_themselves(local)
    with held(local, "a"):
        assert run_by_themselves(local)
    away = msgspec.structs.replace(local.nodes[0], address=ELSEWHERE)
    assert run_by_themselves(msgspec.structs.replace(local, nodes=[away]))


def test_programs_get_a_document_without_a_supervisor(
    spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def look(_spec: ClusterSpec) -> ClusterLook:
        return seen(a="MASTER", b="down")

    monkeypatch.setattr(cluster_elsewhere, "_look", look)
    print_status(spec, Format.JSON)
    document = json.loads(capsysbinary.readouterr().out)
    assert document["supervisor_pid"] is None
    assert [node["state"] for node in document["nodes"]] == [RUNNING, SILENT]


def test_where_nobody_answers_that_is_the_status(
    spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(_spec: ClusterSpec) -> ClusterLook:
        return seen(a="down", b="down")

    monkeypatch.setattr(cluster_elsewhere, "_look", look)
    with pytest.raises(typer.Exit) as caught:
        print_status(spec, Format.TABLE)
    assert caught.value.exit_code == 1
