"""What people are told: by the master, by a slave, and in RocketMQ's shape."""

from trio.testing import MockClock

from tandem.wire.switch_cause import SwitchCause
from tests.ha.fenced_world import open_world


async def test_a_master_tells_of_everybody(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        status = master.ha.status()
        end = master.store.max_physical_offset
        assert (status.role, status.master, status.epoch, status.log_epoch) == (
            "MASTER",
            master.name,
            1,
            1,
        )
        assert (status.log_end, status.confirm, status.refusal) == (end, end, "")
        assert status.isr == ["a", "b", "c"]
        assert 0 < status.lease_left_ms <= 4550
        assert [r.name for r in status.replicas] == [r.name for r in world.slaves()]
        for replica in status.replicas:
            assert replica.connected
            assert replica.in_sync
            assert (replica.written, replica.lag_bytes, replica.trouble) == (end, 0, "")


async def test_a_slave_says_who_the_master_is(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        status = slave.ha.status()
        assert (status.role, status.master) == ("FOLLOWER", master.name)
        assert master.config.client_address in status.refusal
        assert status.replicas == []
        info = slave.ha.runtime_info()
        assert not info.master
        assert info.ha_client_runtime_info.master_addr == f"{master.config.address}:10913"
        assert info.ha_client_runtime_info.last_read_timestamp > 0


async def test_a_missing_slave_is_listed_with_the_reason(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        slave.kill()
        world.reap(slave.name)
        await world.wait_for(lambda: slave.name not in world.isr)
        missing = next(r for r in master.ha.status().replicas if r.name == slave.name)
        assert not missing.connected
        assert not missing.in_sync
        assert missing.written == missing.lag_bytes == -1
        info = master.ha.runtime_info()
        assert info.in_sync_slave_nums == 1
        listed = {c.name: c for c in info.ha_connection_info}
        assert listed[slave.name].slave_ack_offset == -1
        assert listed[slave.name].reason


async def test_in_quarantine_the_reason_is_told(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.whole_group()
        slave = world.slaves()[0]
        assert slave.ha._commands is not None
        slave.ha._commands._round_end.quarantine("its log says otherwise")
        status = slave.ha.status()
        assert status.role == "QUARANTINED"
        assert status.refusal.startswith("its log says otherwise")


async def test_what_each_node_of_a_group_is(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m1|") is not None
        standing = master.ha.replica_standing()
        assert (standing.role, standing.in_sync, standing.needed) == ("MASTER", 3, 2)
        assert standing.lease_left_seconds is not None
        assert 0 < standing.lease_left_seconds < 5
        assert standing.switch_cause == SwitchCause.FIRST == master.ha.status().last_switch_cause
        assert standing.switched_at_ms == master.ha.status().last_switch_at_ms > 0
        slave = world.slaves()[0]
        standing = slave.ha.replica_standing()
        assert (standing.role, standing.follows, standing.behind_bytes) == ("FOLLOWER", True, 0)
        # Who is in sync, and for how long there is a lease, only the master says.
        assert (standing.in_sync, standing.lease_left_seconds) == (None, None)
        world.isolate(master.config.address, slave.config.address)
        await world.wait_for(lambda: not slave.ha.replica_standing().follows)
        standing = slave.ha.replica_standing()
        assert (standing.role, standing.behind_bytes) == ("FOLLOWER", None)
