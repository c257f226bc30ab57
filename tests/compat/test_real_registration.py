"""RocketMQ 5.3.3's own broker registers at a name server of ours, its topics compressed too."""

from pathlib import Path
from typing import Any, Final

import pytest

import tandem
from tandem.testing import running_cluster
from tests.compat.real_broker import broker
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("rocketmq")]

ADMITTED: Final[dict[str, Any]] = {"security": {"rocketmq_brokers": ["real@127.0.0.1"]}}


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_topics_of_a_real_broker_are_in_the_routes_of_a_name_server_of_ours(
    tmp_path: Path, broker_classpath: str, compressed: str
) -> None:
    names = {"brokerName": "real", "brokerClusterName": "real", "listenPort": "27911"}
    with (
        running_cluster(tmp_path, slaves_count=0, settings=ADMITTED) as ours,
        tandem.BlockingAdmin(ours.name_servers) as admin,
    ):
        home, servers = tmp_path / "real", ";".join(ours.name_servers)
        real = broker(
            broker_classpath, home, "127.0.0.1", servers, compressedRegister=compressed, **names
        )
        with real:
            wait_until(lambda: "real" in admin.cluster_info().broker_addr_table)
            admin.create_topic("OfTheReal", queue_nums=3, broker_name="real")
            wait_until(lambda: "OfTheReal" in admin.topics())
            (queues,) = admin.topic_route("OfTheReal").queue_datas
            assert (queues.broker_name, queues.write_queue_nums) == ("real", 3)
