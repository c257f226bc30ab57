import random
from pathlib import Path

import trio
from trio.testing import MockClock

from ha.learners import ConfirmedLog, Learners
from node.config.part_configs import learner_config
from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from store import PutMessage
from tandem.wire.message import Host
from tests.node.doubles import NOW_MS, Broker
from tests.node.world import fenced_cluster
from tests.support.patience import PATIENCE_SECONDS

MASTER, LEARNER = "10.0.0.1", "10.0.0.7"
HEADER_BYTES = 12


def put(broker: Broker) -> int:
    result = broker.store.puts.put_message(PutMessage("T", 0, b"x" * 50, b"", NOW_MS, bytes(8)))
    broker.store.announce()
    return result.end_offset


async def test_a_learner_reads_what_is_confirmed_and_no_further() -> None:
    broker = Broker(is_fenced=True)
    first = put(broker)
    put(broker)
    log = ConfirmedLog(broker.store)
    assert bytes(log.read_log(0, 1000)) == b""
    broker.store.confirm(first)
    assert len(log.read_log(0, 1000)) == first
    assert log.max_physical_offset == first


async def test_a_learner_is_sent_the_log_as_it_is_confirmed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    broker, timeline, won = Broker(is_fenced=True), Timeline(), trio.Event()
    network = SimulatedNetwork(timeline, random.Random(1))
    config = learner_config(fenced_cluster(tmp_path, learners=LEARNER).node("a1"))
    learners = Learners(config, broker.store, network.machine(MASTER), won)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeline.run)
        nursery.start_soon(learners.run)
        won.set()
        await trio.sleep(0.1)
        first, _ = put(broker), put(broker)
        broker.store.confirm(first)
        stream = await network.machine(LEARNER).connect(MASTER, 10912, source=LEARNER)
        await stream.send_all(bytes(8))
        received = bytearray()
        with trio.move_on_after(2):
            while True:
                received += await stream.receive_some(1000)
        assert bytes(received).endswith(bytes(broker.store.read_log(0, first)))
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_without_learners_nobody_listens(tmp_path: Path) -> None:
    network = SimulatedNetwork(Timeline(), random.Random(1))
    config = learner_config(fenced_cluster(tmp_path).node("a1"))
    learners = Learners(config, Broker(is_fenced=True).store, network.machine(MASTER), trio.Event())
    with trio.fail_after(PATIENCE_SECONDS):
        await learners.run()
    assert network.listener_at(Host(MASTER, config.ha_port)) is None
