import importlib.util
import os
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from tandem.cluster.spec import ClusterSpec, GroupSpec, NodeSpec, read_spec
from tandem.cluster_file.choices import (
    BrokerRole,
    ClientAuth,
    CoordinatorKind,
    GroupKind,
    TLSMode,
)
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.cluster_file.load import load_config
from tandem.cluster_file.settings import GroupSettings, ReplicationSettings, TLSSettings
from tandem.cluster_file.store_settings import StoreSettings
from tandem.drill.errors import (
    MissingRequirementError,
    NoPromiseError,
    OutError,
    OutFault,
    Requirement,
)
from tandem.drill.outcomes import FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE
from tandem.drill.preflight import (
    MARKER_NAME,
    REPORT_NAMES,
    Group,
    check_libraries,
    check_ports,
    claimed,
    group_of,
    ports_of,
    proxied_pairs,
    write_config,
)
from tandem.drill.proxied_pair import ProxiedPair
from tandem.testing import write_cluster_file


def node(
    index: int, group: str = "broker-a", address: str = "127.0.0.1", port: int = 1
) -> NodeSpec:
    return NodeSpec(
        name=f"{group}-{index}",
        group=group,
        broker_id=index,
        role="SLAVE" if index else "MASTER",
        address=address,
        port=port,
        ha_port=port + 1,
        name_server_port=port + 2,
        replication_port=port + 3,
        directory=Path("data"),
        commit_log_directories=(),
    )


def spec(
    *nodes: NodeSpec,
    group: GroupSettings = GroupSettings(),  # noqa: B008 - frozen
    in_sync_replicas: int | None = None,
) -> ClusterSpec:
    names = {node.group for node in nodes}
    return ClusterSpec(
        name="c",
        file=Path("cluster.yaml"),
        data_directory=Path("data"),
        secret_file=Path("data/secret"),
        fingerprint="",
        groups={name: GroupSpec.of(group, StoreSettings()) for name in sorted(names)},
        nodes=list(nodes),
        replication=ReplicationSettings(in_sync_replicas=in_sync_replicas),
    )


def made(*nodes: NodeSpec, kind: GroupKind = GroupKind.CLASSIC) -> Group:
    return Group(name="broker-a", kind=kind, nodes=list(nodes))


def fenced(min_isr: int = 2) -> GroupSettings:
    return GroupSettings(GroupKind.FENCED, min_isr=min_isr)


def test_a_fenced_group_is_all_of_its_nodes() -> None:
    group = group_of(spec(node(0), node(1), node(2), group=fenced()), "broker-a")

    assert (group.kind, len(group.nodes)) == ("fenced", 3)
    assert ports_of(group, group.nodes[1]) == (1, 2, 3, 4)


def test_a_fenced_group_that_acknowledges_on_one_node_alone_is_refused() -> None:
    with pytest.raises(NoPromiseError, match="2 nodes and min_isr 1") as caught:
        group_of(spec(node(0), node(1), group=fenced(min_isr=1)), "broker-a")
    assert caught.value.setting == "min_isr"
    with pytest.raises(NoPromiseError) as caught:
        group_of(spec(node(0), group=fenced()), "broker-a")
    assert caught.value.setting == "nodes"


def test_the_port_of_the_coordinator_is_looked_at_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MissingRequirementError) as caught:
            check_ports([made(kind=GroupKind.FENCED)], CoordinatorSettings(port=port))
    assert caught.value.requirement is Requirement.FREE_PORTS
    assert caught.value.names == [f"127.0.0.1:{port}"]
    check_ports(
        [made(kind=GroupKind.FENCED)], CoordinatorSettings(kind=CoordinatorKind.ETCD, port=port)
    )


def test_each_pair_of_nodes_and_coordinator_gets_an_address_of_the_proxy() -> None:
    group = made(node(0, port=20_001), node(1, address="127.0.0.2", port=20_001))

    pairs = proxied_pairs(group, CoordinatorSettings(port=20_009))

    assert len({pair.listen_address for pair in pairs}) == len(pairs) == 4
    assert [pair.target for pair in pairs] == [
        "broker-a-1",
        "coordinator",
        "broker-a-0",
        "coordinator",
    ]


@pytest.mark.parametrize(
    ("address", "coordinator", "requirement"),
    [
        ("192.0.2.1", CoordinatorSettings(), Requirement.LOOPBACK_NODES),
        (
            "127.0.0.1",
            CoordinatorSettings(kind=CoordinatorKind.ETCD, endpoints=["http://a:1", "http://b:1"]),
            Requirement.ONE_ENDPOINT,
        ),
    ],
)
def test_a_network_that_cannot_be_broken_is_told(
    address: str, coordinator: CoordinatorSettings, requirement: Requirement
) -> None:
    with pytest.raises(MissingRequirementError) as caught:
        proxied_pairs(made(node(0, address=address)), coordinator)
    assert caught.value.requirement is requirement


def test_the_drills_file_has_what_scenarios_ask_for_and_the_ways_through_the_proxy(
    tmp_path: Path,
) -> None:
    (tmp_path / "sub").mkdir()
    config = tmp_path / "sub" / "mine.yaml"
    config.write_text(
        "cluster: {secret_file: s.key}\nstore: {a: 1, b: 2}\nnodes: [{name: a}, {name: b}]\n"
    )
    pair = ProxiedPair(
        source="a",
        source_address="127.0.0.1",
        target="b",
        target_address="127.0.0.2",
        listen_address="127.1.1.2",
        ports=(1,),
    )

    written = yaml_of(write_config(config, tmp_path, settings={"store": {"b": 3}}, pairs=[pair]))

    assert written["store"] == {"a": 1, "b": 3}
    assert written["nodes"] == [{"name": "a", "reach": {"b": "127.1.1.2"}}, {"name": "b"}]
    assert written["cluster"] == {
        "secret_file": str(tmp_path / "sub" / "s.key"),
        "data_directory": str(tmp_path / "data"),
    }


def test_a_missing_library_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MissingRequirementError) as caught:
        check_libraries(spark=True)

    assert str(caught.value) == (
        "the drill needs jinja2, matplotlib, pyarrow, pyspark:"
        " pip install 'tandem-mq[drill,spark,java]'"
    )


def test_pyspark_is_not_asked_for_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else object()
    )

    check_libraries(spark=False)
    with pytest.raises(MissingRequirementError) as caught:
        check_libraries(spark=True)
    assert caught.value.requirement is Requirement.LIBRARIES
    assert caught.value.names == ["pyspark"]


def test_master_and_slaves_are_found() -> None:
    group = group_of(spec(node(0), node(1), node(2)), "broker-a")

    assert (group.name, group.kind, group.nodes[0].name) == ("broker-a", "classic", "broker-a-0")
    assert [slave.name for slave in group.slaves] == ["broker-a-1", "broker-a-2"]
    assert group.status_without_slaves == SLAVE_NOT_AVAILABLE


def test_with_a_number_of_replicas_a_lone_master_answers_a_timeout() -> None:
    group = group_of(spec(node(0), node(1), in_sync_replicas=2), "broker-a")
    assert group.status_without_slaves == FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize(
    ("found", "setting"),
    [
        (spec(node(0)), "nodes"),
        (
            spec(node(0), node(1), group=GroupSettings(broker_role=BrokerRole.ASYNC_MASTER)),
            "groups.broker-a.broker_role",
        ),
        (spec(node(0), node(1), in_sync_replicas=1), "replication.in_sync_replicas"),
    ],
)
def test_a_cluster_without_a_promise_to_test_is_refused(found: ClusterSpec, setting: str) -> None:
    with pytest.raises(NoPromiseError) as caught:
        group_of(found, "broker-a")
    assert caught.value.setting == setting


def test_busy_ports_are_named_all_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.2", 0)) as second,
    ):
        ports = (first.getsockname()[1], second.getsockname()[1])
        nodes = [
            msgspec.structs.replace(node(0), port=ports[0], ha_port=0, name_server_port=0),
            msgspec.structs.replace(
                node(1), address="127.0.0.2", port=0, ha_port=ports[1], name_server_port=0
            ),
        ]
        with pytest.raises(MissingRequirementError) as caught:
            check_ports([made(*nodes)], CoordinatorSettings())

    assert str(caught.value).startswith(f"127.0.0.1:{ports[0]}, 127.0.0.2:{ports[1]}: in use")
    assert "tandem cluster down" in str(caught.value)


def test_free_ports_are_no_complaint() -> None:
    free = msgspec.structs.replace(node(0), port=0, ha_port=0, name_server_port=0)
    check_ports([made(free)], CoordinatorSettings())


def test_an_address_of_another_machine_is_named() -> None:
    away = msgspec.structs.replace(node(0), address="192.0.2.1", port=1024)

    with pytest.raises(MissingRequirementError) as caught:
        check_ports([made(away)], CoordinatorSettings())
    assert caught.value.requirement is Requirement.OWN_ADDRESS
    assert caught.value.names == ["192.0.2.1:1024"]


def test_a_new_directory_is_made_and_marked(tmp_path: Path) -> None:
    with claimed(tmp_path / "deep" / "report") as out:
        assert out.is_absolute()
        assert (out / MARKER_NAME).exists()


def test_an_earlier_report_is_removed_and_nothing_else(tmp_path: Path) -> None:
    with claimed(tmp_path) as out:
        for name in REPORT_NAMES:
            (out / name).mkdir()
            (out / name / "file").touch()
        (out / "notes.txt").touch()

    with claimed(tmp_path) as out:
        assert {entry.name for entry in out.iterdir()} == {MARKER_NAME, "notes.txt"}


def test_small_disks_that_a_killed_drill_left_are_let_go(tmp_path: Path) -> None:
    with claimed(tmp_path / "a report") as out:
        place = out / "data" / "broker-a-1"
        place.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
        if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
            pytest.skip("only root can mount")
        (place / "file").touch()

    with claimed(tmp_path / "a report") as out:
        assert not (out / "data").exists()


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()

    with pytest.raises(OutError, match="give another directory") as caught:
        claimed(tmp_path).__enter__()
    assert caught.value.fault is OutFault.FOREIGN
    assert [entry.name for entry in tmp_path.iterdir()] == ["index.html"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").touch()

    with pytest.raises(OutError, match=r"--out .*report: File exists") as caught:
        claimed(tmp_path / "report").__enter__()
    assert caught.value.fault is OutFault.REFUSED


def test_two_drills_cannot_share_a_directory(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(OutError) as caught:
        claimed(tmp_path).__enter__()
    assert caught.value.fault is OutFault.IN_USE

    with claimed(tmp_path):
        pass


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    with claimed(tmp_path / "report") as out:
        (out / "data").symlink_to(tmp_path / "precious")

    with claimed(tmp_path / "report") as out:
        assert not (out / "data").exists()
    assert (tmp_path / "precious" / "file").exists()


def yaml_of(path: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_the_drill_keeps_its_data_to_itself(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        "cluster:\n  name: é\n  data_directory: /precious\n"
        "nodes:\n  - {name: a, directory: /precious/a}\n  - {name: b}\n",
        encoding="utf-8",
    )

    written = yaml_of(write_config(config, tmp_path))

    assert written["cluster"] == {"name": "é", "data_directory": str(tmp_path / "data")}
    assert written["nodes"] == [{"name": "a"}, {"name": "b"}]


def test_a_drill_with_tls_has_certificates_of_its_own(tmp_path: Path) -> None:
    """Nodes dial each other by way of proxies, whose addresses no other certificate has."""
    config = tmp_path / "mine.yaml"
    config.write_text(
        "tls: {mode: enforcing, ca_file: real/ca.pem, client_auth: require}\n"
        "groups: {a: {kind: fenced, min_isr: 1}}\n"
        "nodes:\n"
        "  - {name: a-1, group: a, broker_id: 1, address: 127.0.0.1}\n"
        "  - {name: a-2, group: a, broker_id: 2, address: 127.0.0.2}\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    pair = ProxiedPair(
        source="a-1",
        source_address="127.0.0.1",
        target="a-2",
        target_address="127.0.0.2",
        listen_address="127.0.0.9",
        ports=(1,),
    )
    own = load_config(write_config(config, out, pairs=[pair]))
    assert own.tls == TLSSettings(mode=TLSMode.ENFORCING, client_auth=ClientAuth.REQUIRE)
    for address in ("127.0.0.2", "127.0.0.9"):
        assert own.node("a-2").tls_files.end_of_certificate(address)
    assert own.client_tls is not None
    assert own.client_tls.certificate_file == str(out / "tls/client.pem")


def test_a_drill_on_an_etcd_has_a_name_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        "cluster: {name: real}\n"
        "coordinator: {kind: etcd, endpoints: ['http://127.0.0.1:2379']}\n"
        "groups: {a: {}}\n"
        "nodes: [{name: a-0, group: a, broker_id: 0, address: 127.0.0.1}]\n"
    )

    first, second = (read_spec(write_config(config, tmp_path)).name for _ in range(2))

    assert first != second
    assert first.startswith("real-drill-")


@pytest.mark.parametrize("head", ["", "cluster:\n", "cluster: {}\n"])
def test_a_file_without_a_data_directory_gets_one(tmp_path: Path, head: str) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(head + "nodes: []\n")

    assert yaml_of(write_config(config, tmp_path))["cluster"] == {
        "data_directory": str(tmp_path / "data")
    }


def test_what_a_scenario_asks_of_its_group_is_asked_of_each_and_kept_beside_the_rest(
    tmp_path: Path,
) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    out = tmp_path / "report"
    out.mkdir()

    own = read_spec(write_config(config, out, settings={"group": {"ack_level": "flushed"}}))

    (group,) = yaml.safe_load(own.file.read_text())["groups"].values()
    assert group["ack_level"] == "flushed"
    assert group["kind"] == "fenced"
    assert group["min_isr"] == 2
