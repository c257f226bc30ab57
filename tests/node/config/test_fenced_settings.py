from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.config.fenced_settings import GroupKind
from node.config.node_config import NodeSettings
from tests.node.config.test_node_config import MINIMAL, load, problems

if TYPE_CHECKING:
    from pathlib import Path

FENCED = """\
groups:
  broker-a: {kind: fenced}
nodes:
  - {name: broker-a-0, group: broker-a, broker_id: 1, address: 127.0.0.1}
  - {name: broker-a-1, group: broker-a, broker_id: 2, address: 127.0.0.2}
  - {name: broker-a-2, group: broker-a, broker_id: 3, address: 127.0.0.3}
"""


def test_a_node_of_a_fenced_group_knows_its_peers_and_where_to_dial_them(tmp_path: Path) -> None:
    text = FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {broker-a-2: 127.1.0.2}}")
    node = load(tmp_path, text).node("broker-a-0")
    assert node.is_fenced
    assert node.group.kind is GroupKind.FENCED
    assert [(peer.name, node.address_of(peer)) for peer in node.peers] == [
        ("broker-a-1", "127.0.0.2"),
        ("broker-a-2", "127.1.0.2"),
    ]


def test_the_fingerprint_does_not_see_by_which_way_others_are_reached(tmp_path: Path) -> None:
    text = FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {coordinator: 127.1.0.2}}")
    fingerprint = load(tmp_path, text).fingerprint
    assert fingerprint == load(tmp_path, FENCED).fingerprint
    assert fingerprint != load(tmp_path, "coordinator: {lease_ttl_ms: 9000}\n" + FENCED).fingerprint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FENCED.replace("kind: fenced", "kind: fenced, min_isr: 4"),
            ":2: groups.broker-a.min_isr: 4 replicas cannot be in sync: the group has 3 nodes",
        ),
        (
            FENCED.replace("broker_id: 1", "broker_id: 0"),
            ":4: nodes[0].broker_id: 0 is the master of the moment, and a fenced group elects it",
        ),
        (
            FENCED.replace("broker_id: 1", "broker_id: 2"),
            ":5: nodes[1].broker_id: 2 is taken by broker-a-0; give another",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, broker_role: ASYNC_MASTER"),
            ":2: groups.broker-a.broker_role: a fenced group answers a put once",
        ),
        (
            "store: {timer_wheel_enable: true}\n" + FENCED,
            ":1: store.timer_wheel_enable: the wheel is not replicated",
        ),
        (
            "store: {transient_store_pool_enable: true}\n" + FENCED,
            ":1: store.transient_store_pool_enable: what waits in the pool is lost",
        ),
        (
            FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {broker-b: 127.1.0.2}}"),
            ":4: nodes[0].reach: 'broker-b' is neither another node nor 'coordinator'",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, learners: 10.0.0.7"),
            ":2: groups.broker-a.learners: must be a list",
        ),
        (
            FENCED.replace("127.0.0.1}", "127.0.0.1, reach: [127.1.0.2]}"),
            ":4: nodes[0].reach: must be a block of 'key: value' lines",
        ),
        (
            FENCED.replace("127.0.0.2}", "127.0.0.1, port: 1, ha_port: 2, name_server_port: 3}"),
            ":5: nodes[1]: replication_port 10913 at 127.0.0.1 is already the replication_port of",
        ),
        (
            "groups:\n  broker-a: {ack_level: flushed}\n" + MINIMAL.partition("{}\n")[2],
            ":2: groups.broker-a.ack_level: a classic slave does not say what it has flushed",
        ),
        (
            "coordinator: {endpoints: ['http://a:2379']}\n" + FENCED,
            ":1: coordinator.endpoints: are of etcd; give kind: etcd, or take them out",
        ),
        (
            "coordinator: {kind: etcd}\n" + FENCED,
            ":1: coordinator.kind: etcd needs its addresses",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['a:2379']}\n" + FENCED,
            ":1: coordinator.endpoints: 'a:2379' is not an address of etcd; give http://HOST:PORT",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a' has no port (etcd's own is 2379); give http://",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:x']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a:x' is not an address of etcd",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://u@a:1']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://u@a:1' has more than a host and a port",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1/v3']}\n" + FENCED,
            ":1: coordinator.endpoints: 'http://a:1/v3' has more than a host and a port",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1', 'https://b:1']}\n" + FENCED,
            ":1: coordinator.endpoints: some are http:// and some https://",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], ca_file: c}\n" + FENCED,
            ":1: coordinator.ca_file: is for https://, and an endpoint is http://",
        ),
        (
            FENCED.replace("name: broker-a-0", "name: coordinator"),
            ":4: nodes[0].name: 'coordinator' is the name of something else in the data directory",
        ),
        (
            FENCED.replace("name: broker-a-0", "name: logs"),
            ":4: nodes[0].name: 'logs' is the name of something else in the data directory",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], user: root}\n" + FENCED,
            ":1: coordinator.user: needs a password_file, and that one a user",
        ),
        (
            "coordinator: {kind: etcd, endpoints: ['http://a:1'], cert_file: c}\n" + FENCED,
            ":1: coordinator.cert_file: needs a key_file, and that one a cert_file",
        ),
    ],
)
def test_what_does_not_fit_together_is_named_with_a_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text)
    assert found[0].startswith("cluster.yaml" + expected), found


def test_the_secret_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    text = "cluster: {secret_file: secret}\n" + FENCED
    assert load(tmp_path, text).secret == "0123456789abcdef"
    (tmp_path / "secret").write_text("short\n")
    assert problems(tmp_path, text)[0].startswith(
        "cluster.yaml:1: cluster.secret_file: secret holds less than 16 bytes: too easy to guess"
    )
    (tmp_path / "secret").unlink()
    assert "cluster.secret_file: secret cannot be read" in problems(tmp_path, text)[0]


def test_no_two_nodes_share_the_list_and_the_map_of_a_default() -> None:
    one, other = (
        NodeSettings(name=name, group="broker-a", broker_id=1, address="127.0.0.1")
        for name in ("a", "b")
    )
    assert one.reach is not other.reach
