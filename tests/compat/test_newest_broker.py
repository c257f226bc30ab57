"""A directory goes from a node of ours to a broker of RocketMQ 5.5.0, and back.

Each reads every message that is there, finds the groups where they were, and delivers what waited
for its time, and nothing that was recalled; then it gets more. Stores alone go to and fro in
test_rocketmq_store.py.
"""

from pathlib import Path
from typing import Final

import pytest

from tandem.client import BlockingAdmin
from tandem.testing import running_cluster
from tests.compat.broker_directory import (
    OURS,
    QUEUES,
    TOPICS,
    all_of,
    delivered,
    fill,
    look,
    wait_for_delayed,
)
from tests.compat.programs import NotToBeHadError
from tests.compat.real_broker import broker, name_server, own_address
from tests.compat.suites import FIVE_FIVE
from tests.support.patience import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]

THEIRS: Final = {
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "600000",
    "mappedFileSizeTimerLog": "104857600",
    # Else 5.5 knows a recall by the message's key alone, and not by topic and key as 5.3.3.
    "appendTopicForTimerDeleteKey": "true",
}


def test_a_directory_goes_to_a_broker_of_5_5_and_back(tmp_path: Path) -> None:
    try:
        jars = FIVE_FIVE.jars
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ 5.5.0 cannot be fetched: {error}")
    home = tmp_path / "ours"
    home.mkdir()
    with running_cluster(home, slaves_count=1, settings=OURS) as cluster:
        servers = ";".join(cluster.name_servers)
        with BlockingAdmin(servers) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, queue_nums=QUEUES)
        fill(servers, "ours")
        left, store = look(servers), cluster.store_directory(cluster.nodes[0])
        # The end of a cluster of tests is a kill, and where groups are is written every 5 s.
        cluster.stop(cluster.nodes[0])
    address = own_address()
    place = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    with (
        name_server(jars, tmp_path / "names", address),
        broker(jars, tmp_path / "theirs", address, f"{address}:9876", **THEIRS, **place) as newest,
    ):
        servers = f"{address}:9876"
        with BlockingAdmin(servers) as admin:
            wait_until(lambda: {*TOPICS} <= set(admin.topics()))
        assert look(servers) == left
        wait_for_delayed(servers, "ours")
        assert delivered(servers) == all_of("ours")
        fill(servers, "theirs")
        left = look(servers)
        newest.stop()
    with running_cluster(home, slaves_count=1, settings=OURS) as cluster:
        servers = ";".join(cluster.name_servers)
        assert look(servers) == left
        wait_for_delayed(servers, "theirs")
        # Of what another program wrote into `timercheck` the lower number counts: what its timers
        # delivered comes again. What was recalled does not.
        assert {*delivered(servers)} == {*all_of("ours"), *all_of("theirs")}
