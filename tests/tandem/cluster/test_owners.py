import os
import socket
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tandem.cluster import ClusterSpec, NotOursError, owners
from tandem.cluster.owners import (
    check_addresses,
    check_free,
    has_ended_here,
    holders,
    not_up,
    of_other_users,
)
from tandem.wire.group_state import NodeRecord, encode_record
from tandem.wire.store_layout import REPLICA_FILE
from tests.tandem.cluster.fakes import fake_spec, held

SESSION: Final = "0123456789abcdef"
ELSEWHERE: Final = "198.51.100.7"  # of RFC 5737: no machine has it


def record(session: str = SESSION) -> bytes:
    return encode_record(NodeRecord(node="a", session=session, incarnation="i", epoch=1, end=0))


def store_that_knows(spec: ClusterSpec, session: str) -> None:
    directory = spec.node("a").directory
    directory.mkdir(parents=True, exist_ok=True)
    (directory / REPLICA_FILE).write_text(f'{{"tokens": ["{session}"]}}')


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    return fake_spec(tmp_path, "a", "b")


def with_address(spec: ClusterSpec, address: str) -> ClusterSpec:
    first, *others = spec.nodes
    return msgspec.structs.replace(
        spec, nodes=[msgspec.structs.replace(first, address=address), *others]
    )


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "ENDING_SECONDS_MAX", 0.0)


async def test_a_store_that_a_process_has_open_is_named_with_the_process(spec: ClusterSpec) -> None:
    await check_free(spec, spec.nodes)
    with held(spec, "b") as pid:
        assert holders(spec.nodes) == {"b": pid}
        with pytest.raises(NotOursError, match=rf"b \(process {pid}\)") as caught:
            await check_free(spec, spec.nodes)
        assert caught.value.names == ["b"]
        assert "tandem ha status --config" in str(caught.value)
        await check_free(spec, [spec.node("a")])
    await check_free(spec, spec.nodes)


async def test_a_store_of_another_user_is_left_alone_for_nobody_knows_whether_it_is_free(
    spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_that_knows(spec, SESSION)
    lock = spec.node("a").directory / "lock"
    lock.touch()
    await check_free(spec, spec.nodes)
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != lock)
    assert of_other_users(spec.nodes) == [spec.node("a")]
    with pytest.raises(NotOursError) as caught:
        await check_free(spec, spec.nodes)
    assert caught.value.names == ["a"]
    assert "tandem cluster up" not in str(not_up(spec))
    await check_free(spec, [spec.node("b")])


def test_so_is_one_in_a_directory_that_cannot_be_entered(
    spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "stat", closed)
    assert of_other_users(spec.nodes) == spec.nodes
    assert holders(spec.nodes) == {}


def test_the_lease_of_a_session_that_the_store_knows_and_that_is_over_is_ours(
    spec: ClusterSpec,
) -> None:
    store_that_knows(spec, SESSION)
    assert has_ended_here(record(), spec.node("a"))


@pytest.mark.parametrize("session", ["f" * 16, SESSION[:15], ""])
def test_the_lease_of_any_other_session_is_not(spec: ClusterSpec, session: str) -> None:
    store_that_knows(spec, SESSION)
    assert not has_ended_here(record(session), spec.node("a"))


def test_nor_one_of_a_node_without_a_store_or_with_a_record_that_cannot_be_read(
    spec: ClusterSpec,
) -> None:
    assert not has_ended_here(record(), spec.node("a"))
    store_that_knows(spec, SESSION)
    assert not has_ended_here(b"{}", spec.node("a"))


def test_nor_one_of_a_process_that_has_the_store_open(spec: ClusterSpec) -> None:
    store_that_knows(spec, SESSION)
    with held(spec, "a"):
        assert not has_ended_here(record(), spec.node("a"))


def test_nor_one_of_a_process_that_serves_with_another_copy_of_the_store(
    spec: ClusterSpec,
) -> None:
    store_that_knows(spec, SESSION)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = msgspec.structs.replace(spec.node("a"), name_server_port=listener.getsockname()[1])
        assert not has_ended_here(record(), node)


def test_nodes_of_other_machines_are_not_started_here(spec: ClusterSpec) -> None:
    check_addresses(spec)
    with pytest.raises(NotOursError, match=rf"a \({ELSEWHERE}\)") as caught:
        check_addresses(with_address(spec, ELSEWHERE))
    assert "python -P -m tandem_server node" in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.9", "0.0.0.0", "::1", "no such host"])
def test_addresses_of_this_machine_and_those_that_only_the_node_can_judge_are_taken(
    spec: ClusterSpec, address: str
) -> None:
    check_addresses(with_address(spec, address))


def test_an_order_without_a_supervisor_is_answered_with_what_fits_there(spec: ClusterSpec) -> None:
    assert "start it with `tandem cluster up`" in str(not_up(spec))
    assert "tandem cluster up" not in str(not_up(with_address(spec, ELSEWHERE)))
    with held(spec, "a"), held(spec, "b"):
        text = str(not_up(spec))
    assert "run by themselves. `tandem ha status" in text
    assert "tandem cluster up" not in text


def test_what_is_to_be_typed_can_be_typed_wherever_the_file_is(spec: ClusterSpec) -> None:
    file = Path("/srv/my clusters/cluster.yaml")
    moved = msgspec.structs.replace(spec, file=file)
    with held(spec, "a"):
        assert f"`tandem ha status --config '{file}'`" in str(not_up(moved))
    assert f"node --config '{file}' --name NODE`" in str(not_up(with_address(moved, ELSEWHERE)))
