import json
from pathlib import Path

import pytest
from trio.testing import MockClock

from node.handlers.broker_epoch_cache import BrokerEpochCache
from tandem.wire.request_code import RequestCode
from tandem.wire.stats_requests import EpochEntryBody
from tests.node.doubles import Client
from tests.node.world import NAMES, fenced_cluster, open_world

ASK = RequestCode.GET_BROKER_EPOCH_CACHE


class FakeReplica:
    def __init__(self, *epochs: EpochEntryBody, is_master: bool) -> None:
        self.is_master = is_master
        self._epochs = list(epochs)

    def epoch_list(self) -> list[EpochEntryBody]:
        return self._epochs


async def test_the_epochs_of_a_log(tmp_path: Path) -> None:
    config = fenced_cluster(tmp_path).node("a2")
    replica = FakeReplica(EpochEntryBody(50, 1, 0), EpochEntryBody(100, 3, 50), is_master=False)
    answer = Client({ASK: BrokerEpochCache(config, replica).handle}).call(ASK)
    assert answer.body == (
        b'{"brokerId":2,"brokerName":"broker-a","clusterName":"DefaultCluster","epochList":['
        b'{"endOffset":50,"epoch":1,"startOffset":0},{"endOffset":100,"epoch":3,"startOffset":50}],'
        b'"maxOffset":100}'
    )


async def test_a_master_without_a_log(tmp_path: Path) -> None:
    config = fenced_cluster(tmp_path).node("a2")
    cache = BrokerEpochCache(config, FakeReplica(is_master=True))
    found = json.loads(Client({ASK: cache.handle}).call(ASK).body)
    assert (found["brokerId"], found["epochList"], found["maxOffset"]) == (0, [], 0)


@pytest.mark.slow
async def test_a_group_that_has_changed_its_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        first = await world.master()
        await world.kill(first)
        heir = await world.master(*(name for name in NAMES if name != first), after=1)
        async with world.client(world.address(heir)) as client:
            found = json.loads((await client.call(ASK)).body)
        log_end = (await world.status(heir)).log_end
    epochs = found["epochList"]
    assert found["brokerId"] == 0
    assert [epoch["epoch"] for epoch in epochs] == sorted(epoch["epoch"] for epoch in epochs)
    assert len(epochs) >= 2
    assert epochs[0]["endOffset"] == epochs[1]["startOffset"]
    assert epochs[-1]["endOffset"] == found["maxOffset"] <= log_end
