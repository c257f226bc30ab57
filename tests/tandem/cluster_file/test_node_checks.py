from pathlib import Path

import pytest

from tests.tandem.cluster_file.files import FENCED, MINIMAL, problems

CASES = {
    "a host name": (
        "127.0.0.2",
        "localhost",
        "cluster.yaml:11: nodes[1].address: 'localhost' is not an IP address; give an IPv4"
        " address of the machine, such as 127.0.0.1",
    ),
    "IPv6": (
        "127.0.0.2",
        '"::1"',
        "cluster.yaml:11: nodes[1].address: ::1 is IPv6, which clients of RocketMQ 4 cannot read;"
        " give an IPv4 address of the machine, such as 127.0.0.1",
    ),
    "every address": (
        "127.0.0.2",
        "0.0.0.0",
        "cluster.yaml:11: nodes[1].address: 0.0.0.0 is not the address of one machine; give an"
        " IPv4 address of the machine, such as 127.0.0.1",
    ),
    "a missing key": (
        "    address: 127.0.0.2\n",
        "",
        "cluster.yaml:8: nodes[1].address: is missing; add it",
    ),
    "one port for two things": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    ha_port: 10911\n",
        "cluster.yaml:12: nodes[1].ha_port: ha_port 10911 at 127.0.0.2 is already the port of"
        " broker-a-1; give another",
    ),
    "a port of metrics that is taken": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    metrics_port: 9876\n",
        "cluster.yaml:12: nodes[1].metrics_port: 9876 at 127.0.0.2 is already the name_server_port"
        " of broker-a-1; give another",
    ),
    "a port out of range": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    port: 65536\n",
        "cluster.yaml:12: nodes[1].port: '65536' is not valid; give a whole number from 1 to"
        " 65535 (a TCP port)",
    ),
    "two nodes of one name": (
        "name: broker-a-1",
        "name: broker-a-0",
        "cluster.yaml:8: nodes[1].name: two nodes are named 'broker-a-0'; rename one",
    ),
    "a name with a slash": (
        "name: broker-a-1",
        "name: broker/1",
        "cluster.yaml:8: nodes[1].name: 'broker/1' is not valid; give letters, digits, '-' and"
        " '_', at most 64, starting with a letter or digit",
    ),
    "a shared commit log": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    store_path_commit_log: /srv/a,/srv/a\n",
        "cluster.yaml:12: nodes[1].store_path_commit_log: /srv/a is a directory of broker-a-1"
        " already; give another",
    ),
    "an empty path": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    store_path_commit_log: /srv/a,\n",
        "cluster.yaml:12: nodes[1].store_path_commit_log: one of the paths is empty; give one, or"
        " several with ',' between",
    ),
    "a shared directory": (
        "    address: 127.0.0.2\n",
        "    address: 127.0.0.2\n    directory: data/broker-a-0\n",
        "cluster.yaml:12: nodes[1].directory: shares its directory with broker-a-0; give each its"
        " own",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), CASES.values(), ids=CASES.keys())
def test_a_wrong_node_is_named_with_a_remedy(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in MINIMAL
    assert problems(tmp_path, MINIMAL.replace(old, new)) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FENCED.replace("127.0.0.1}", "127.0.0.1, reach: {broker-b: 127.1.0.2}}"),
            ":4: nodes[0].reach: 'broker-b' is neither another node nor 'coordinator'",
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
            FENCED.replace("name: broker-a-0", "name: coordinator"),
            ":4: nodes[0].name: 'coordinator' is the name of something else in the data directory",
        ),
        (
            FENCED.replace("name: broker-a-0", "name: logs"),
            ":4: nodes[0].name: 'logs' is the name of something else in the data directory",
        ),
        (
            "broker: {vip_channel_enable: true}\n"
            + FENCED.replace("127.0.0.1}", "127.0.0.1, port: 2}"),
            ":5: nodes[0].port: 2 - 2 is no port for the VIP channel; give 3 or more",
        ),
        (
            "broker: {vip_channel_enable: true}\n"
            + FENCED.replace("127.0.0.1}", "127.0.0.1, ha_port: 10909}"),
            ":5: nodes[0].ha_port: ha_port 10909 at 127.0.0.1 is already the vip_port of",
        ),
        (
            "metrics: {port: 5557}\n"
            + FENCED.replace(
                "127.0.0.2}",
                "127.0.0.1, port: 1, ha_port: 2, name_server_port: 3, replication_port: 4}",
            ),
            ":1: metrics.port: 5557 at 127.0.0.1 is already the metrics port of broker-a-0",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, master_address: '127.0.0.2:10911'"),
            ":2: groups.broker-a.master_address: 127.0.0.2:10911 is already the port of broker-a-1",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, master_address: '127.0.0.9'"),
            ":2: groups.broker-a.master_address: '127.0.0.9' is no address and port; write",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, master_address: 'localhost:10911'"),
            ":2: groups.broker-a.master_address: 'localhost' is not an IP address",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, master_address: '127.0.0.9:65536'"),
            ":2: groups.broker-a.master_address: '127.0.0.9:65536' is no address and port",
        ),
    ],
)
def test_names_and_ports_that_meet_others_are_named_with_a_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text)
    assert found[0].startswith("cluster.yaml" + expected), found
