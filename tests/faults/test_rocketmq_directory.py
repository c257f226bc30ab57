"""A node goes on with the directory of a broker of RocketMQ 5.5.0.

What is in it is told in tests/data/rocketmq-5.5.0/README.md.
"""

import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import tandem
from tandem.client import BlockingAdmin
from tandem.testing import running_cluster
from tests.compat.broker_directory import TOPICS, delivered, look
from tests.support.paths import ROOT
from tests.support.patience import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.thorough]

DIRECTORY: Final = ROOT / "tests/data/rocketmq-5.5.0/broker.tar.xz"
COMPACTED: Final = {"cleanup.policy": "COMPACTION"}
SETTINGS: Final[dict[str, Any]] = {
    "groups": {"broker-a": {"broker_role": "ASYNC_MASTER"}},
    "store": {
        "mapped_file_size_commit_log_bytes": 1_048_576,
        "mapped_file_size_consume_queue_bytes": 6_000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "timer_wheel_enable": True,
    },
}


def test_a_node_goes_on_where_a_broker_of_5_5_was(tmp_path: Path) -> None:
    """Messages by queue and key, topics, groups, a delay level, timers, and one recalled there.

    5.5 knows a recall by the key of the message alone, where 5.3.3 has its topic before it.
    """
    with tarfile.open(DIRECTORY) as archive:
        archive.extractall(tmp_path)
    expected = msgspec.json.decode((tmp_path / "broker.json").read_bytes())
    (tmp_path / "data").mkdir()
    (tmp_path / "store").rename(tmp_path / "data" / "broker-a-0")
    with running_cluster(tmp_path, slaves_count=0, settings=SETTINGS) as cluster:
        servers = ";".join(cluster.name_servers)
        with BlockingAdmin(servers) as admin:
            assert {*TOPICS, "State"} <= set(admin.topics())
            assert admin.describe_topic("State").brokers[0].attributes == COMPACTED
        assert look(servers) == expected
        with tandem.BlockingProducer(servers, "later") as producer:
            # Its time comes after that of all others.
            producer.send(tandem.Message("Later", b"ours", delay_ms=1_000))
        wait_until(lambda: "ours" in delivered(servers))
        assert delivered(servers) == ["ours", "theirs level", "theirs timed"]
