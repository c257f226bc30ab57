from pathlib import Path

import msgspec
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.node_table import TableFiles
from node.tables.replicated_modes import ModesTable
from node.tables.replicated_quotas import QuotasTable
from node.tables.replicated_users import AclsTable, UsersTable
from node.tables.slave_synchronize import SlaveSynchronize
from node.tables.subscription_group_table import SubscriptionGroupTable
from node.tables.topic_config_table import TopicConfigTable
from store.machine.table_file import TableFile
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import UpdateConsumerOffsetRequestHeader
from tests.node.world import MASTER, SLAVE_1, World, cluster_config, open_world


class Slave:
    """The tables of a slave, and what copies them."""

    def __init__(self, config: NodeConfig, world: World) -> None:
        disk = SimulatedDisk()
        self.disk = disk
        self.topics = TopicConfigTable(TableFile(disk, "t.json"), lambda: 1)
        self.groups = SubscriptionGroupTable(TableFile(disk, "g.json"), lambda: 1)
        self.offsets = ConsumerOffsetTable(TableFile(disk, "o.json"), lambda: 1)
        files = TableFiles(disk, "s", lambda: 1)
        self.users, self.acls = UsersTable(files), AclsTable(files)
        self.quotas = QuotasTable(files)
        self.modes = ModesTable(files)
        self.synchronize = SlaveSynchronize(
            config,
            world.network.machine(SLAVE_1),
            self.topics,
            self.groups,
            self.offsets,
            users=self.users,
            acls=self.acls,
            quotas=self.quotas,
            modes=self.modes,
        )


async def commit(world: World, offset: int) -> None:
    async with world.client(MASTER) as master:
        await master.send(b"x", wait=False)
        header = UpdateConsumerOffsetRequestHeader("g", "T", 0, offset)
        assert (await master.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def test_topics_and_offsets_are_copied_and_kept_when_the_master_dies(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world, trio.open_nursery() as nursery:
        await world.start("a0")
        slave = Slave(config.node("a1"), world)
        nursery.start_soon(slave.synchronize.run)
        await commit(world, 5)
        await trio.sleep(3.5)
        assert slave.topics.get("T") is not None
        assert slave.offsets.query("g", "T", 0) == 5
        await world.kill("a0")
        await trio.sleep(60)
        assert slave.topics.get("T") is not None
        assert slave.offsets.query("g", "T", 0) == 5
        await world.start("a0")
        await commit(world, 8)
        await trio.sleep(4.5)
        assert slave.offsets.query("g", "T", 0) == 8
        nursery.cancel_scope.cancel()


async def test_a_full_disk_on_the_slave_is_waited_out(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path)
    async with open_world(config) as world, trio.open_nursery() as nursery:
        await world.start("a0")
        slave = Slave(config.node("a1"), world)
        slave.disk.capacity_bytes = 0
        nursery.start_soon(slave.synchronize.run)
        await trio.sleep(10)
        assert slave.topics.get("TBW102") is None
        slave.disk.capacity_bytes = 1 << 30
        await trio.sleep(2)
        assert slave.topics.get("TBW102") is not None
        nursery.cancel_scope.cancel()


async def test_the_master_is_dialled_where_the_file_says_that_it_is_reached(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    node = cluster_config(tmp_path).node("a1")
    moved = msgspec.structs.replace(node.node, reach={"a0": "10.0.0.99"})
    async with open_world(node.cluster) as world, trio.open_nursery() as nursery:
        await world.start("a0")
        slave = Slave(NodeConfig(node.cluster, moved), world)
        nursery.start_soon(slave.synchronize.run)
        await commit(world, 5)
        await trio.sleep(3.5)
        assert slave.topics.get("T") is None
        nursery.cancel_scope.cancel()
