"""promote, resign, rejoin: what is done, what is refused, and the numbers that are named."""

import trio
from trio.testing import MockClock

from ha.fenced.replica_role import ReplicaRole
from store import PutMessageStatus
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tests.ha.fenced_world import FencedWorld, Replica, open_world, refused

OK = PutMessageStatus.PUT_OK


async def order(
    replica: Replica, command: str, node: str = "", *, accept_loss: bool = False
) -> FencedCommandResult:
    order = FencedCommand(command=command, node=node, accept_loss=accept_loss)  # type: ignore[arg-type]
    return await replica.ha.command(order)


def behind(world: FencedWorld, master: Replica) -> Replica:
    """Cut one slave off from the master; it leaves the in-sync set."""
    slave = world.slaves()[0]
    world.isolate(master.config.address, slave.config.address)
    return slave


async def test_a_member_is_promoted_with_everything(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        wanted = world.slaves()[1]
        answers = first.submit(first.put(b"|m1|"))
        result = await order(first, "promote", wanted.name)
        assert result.done, result.text
        assert answers[0][0] is OK
        second = await world.master(but=first.name)
        assert second is wanted
        assert second.bodies == [b"m1"]
        status = second.ha.status()
        assert status.last_switch_reason == f"an operator promoted {wanted.name}"
        assert status.previous_master == first.name
        await world.wait_for(lambda: world.in_sync(second))


async def test_the_master_is_promoted_already(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert (await order(master, "promote", master.name)).done
        assert not (await order(master, "promote", "d")).done
        assert world.masters() == [master]


async def test_one_that_lacks_messages_is_refused_with_numbers(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = behind(world, master)
        await world.wait_for(lambda: slave.name not in world.isr)
        for number in range(3):
            assert await master.send(b"|m%d|" % number) is OK
        result = await order(master, "promote", slave.name)
        assert not result.done
        assert result.lost_messages == 3
        assert result.lost_bytes == master.store.max_physical_offset
        assert f"{slave.name} lacks 3 messages" in result.text
        assert "--accept-loss" in result.text
        assert await master.send(b"|m4|") is OK


async def test_with_accepted_loss_it_becomes_master(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = behind(world, master)
        await world.wait_for(lambda: slave.name not in world.isr)
        assert await master.send(b"|m1|") is OK
        result = await order(master, "promote", slave.name, accept_loss=True)
        assert result.done, result.text
        assert result.lost_messages == 1
        world.network.heal_all()
        await world.wait_for(lambda: slave.ha.role is ReplicaRole.MASTER)
        assert world.state is not None
        assert world.state.master == slave.name


async def test_nothing_is_taken_beyond_the_loss_that_was_accepted(
    autojump_clock: MockClock,
) -> None:
    """Whether the other one may be elected is not known: puts would be lost, uncounted."""
    async with open_world() as world:
        master = await world.whole_group()
        slave = behind(world, master)
        await world.wait_for(lambda: slave.name not in world.isr)
        assert await master.send(b"|m1|") is OK
        refusals: list[str] = []

        def lose_answer(ip: str, call: str) -> None:
            if call == "transact" and ip == master.config.address:
                world.coordinator.lost_replies[ip] = 1
                world.coordinator.on_call = lambda _ip, _call: None
                refusals.append(refused(master.ha))

        world.coordinator.on_call = lose_answer
        result = await order(master, "promote", slave.name, accept_loss=True)
        assert not result.done
        assert "may still happen" in result.text
        assert slave.name in refusals[0]
        assert master.ha.role is not ReplicaRole.MASTER
        await world.wait_for(lambda: slave.ha.role is ReplicaRole.MASTER)


async def test_a_member_that_does_not_follow_is_not_promoted(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = behind(world, master)
        end = master.put(b"|m1|")
        master.store.announce()
        result = await order(master, "promote", slave.name)
        assert not result.done
        assert (result.lost_messages, result.lost_bytes) == (1, end)
        await world.wait_for(lambda: master.ha.refusal() is None)
        assert await master.send(b"|m2|") is OK


async def test_a_dead_node_is_not_promoted(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        slave.kill()
        world.reap(slave.name)
        await trio.sleep(1)
        result = await order(master, "promote", slave.name, accept_loss=True)
        assert not result.done
        assert "is not registered" in result.text


async def test_a_master_resigns_and_stands_back(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        await first.send(b"|m1|")
        result = await order(first, "resign")
        assert result.done, result.text
        second = await world.master(but=first.name)
        assert "an operator asked it to resign" in second.ha.status().last_switch_reason
        await world.wait_for(lambda: world.in_sync(second))
        second.kill()
        world.reap(second.name)
        third = await world.master(but=second.name)
        assert third.name != first.name


async def test_nobody_resigns_without_another_who_could_be_master(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        for slave in world.slaves():
            slave.kill()
            world.reap(slave.name)
        await trio.sleep(1)
        result = await order(master, "resign")
        assert not result.done
        assert "no other member" in result.text
        assert master.ha.role is ReplicaRole.MASTER


async def test_orders_for_the_master_are_for_the_master(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.whole_group()
        slave = world.slaves()[0]
        assert "is not the master" in (await order(slave, "resign")).text
        assert "is not the master" in (await order(slave, "promote", slave.name)).text


async def test_a_slave_rejoins_as_another_replica(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        slave = world.slaves()[0]
        before = slave.ha.replica.file.incarnation
        promised = slave.ha.replica.file.promised
        result = await order(slave, "rejoin")
        assert result.done, result.text
        await world.wait_for(lambda: slave.rounds == 2 and world.is_back(slave), 60)
        assert slave.bodies == [b"m1"]
        assert slave.ha.replica.file.incarnation != before
        assert slave.ha.replica.file.promised >= promised
        assert world.disks[slave.name].list_directories("/store/set-aside") == [f"replica-{before}"]


async def test_what_may_be_the_only_copy_is_not_given_up(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        other, slave = world.slaves()
        other.kill()
        world.reap(other.name)
        await world.wait_for(lambda: other.name not in world.isr)
        result = await order(slave, "rejoin")
        assert not result.done
        assert "only 1 other members live" in result.text
        assert (await order(slave, "rejoin", accept_loss=True)).done
        await world.wait_for(lambda: slave.rounds == 2 and master.ha.refusal() is None, 60)
        assert slave.bodies == [b"m1"]


async def test_a_master_does_not_rejoin(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        result = await order(master, "rejoin", accept_loss=True)
        assert "have it resign first" in result.text
        assert master.ha.role is ReplicaRole.MASTER
