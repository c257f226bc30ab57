from pathlib import Path

import pytest

from tests.tandem.cluster_file.files import FENCED, MINIMAL, problems

CASES = {
    "two masters": (
        "broker_id: 1",
        "broker_id: 0",
        "cluster.yaml:10: nodes[1].broker_id: group broker-a has two masters, broker-a-0 and"
        " broker-a-1; only one node of a group may have broker_id 0",
    ),
    "no master": (
        "broker_id: 0",
        "broker_id: 2",
        "cluster.yaml:2: groups.broker-a: has no master; give one of its nodes broker_id: 0",
    ),
    "unknown group": (
        "    group: broker-a\n    broker_id: 1",
        "    group: broker-aa\n    broker_id: 1",
        "cluster.yaml:9: nodes[1].group: no group is named 'broker-aa'; did you mean 'broker-a'?",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), CASES.values(), ids=CASES.keys())
def test_a_group_that_its_nodes_do_not_make_is_named_with_a_remedy(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in MINIMAL
    assert problems(tmp_path, MINIMAL.replace(old, new)) == [expected]


def test_nodes_of_one_group_need_addresses_of_their_own(tmp_path: Path) -> None:
    text = MINIMAL.replace("127.0.0.2", "127.0.0.1") + "    port: 1\n    ha_port: 2\n"
    found = problems(tmp_path, text + "    name_server_port: 3\n")
    assert len(found) == 1
    assert found[0].startswith(
        "cluster.yaml:11: nodes[1].address: 127.0.0.1 is taken by broker-a-0 of the same group"
    )


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
            "store: {transient_store_pool_enable: true}\n" + FENCED,
            ":1: store.transient_store_pool_enable: what waits in the pool is lost",
        ),
        (
            FENCED.replace("kind: fenced", "kind: fenced, learners: 10.0.0.7"),
            ":2: groups.broker-a.learners: must be a list",
        ),
        (
            "groups:\n  broker-a: {ack_level: flushed}\n" + MINIMAL.partition("{}\n")[2],
            ":2: groups.broker-a.ack_level: a classic slave does not say what it has flushed",
        ),
        (
            "groups:\n  broker-a: {master_address: '127.0.0.9:10911'}\n"
            + MINIMAL.partition("{}\n")[2],
            ":2: groups.broker-a.master_address: the master of a classic group is always the same",
        ),
    ],
)
def test_what_a_kind_of_group_cannot_be_is_named_with_a_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text)
    assert found[0].startswith("cluster.yaml" + expected), found
