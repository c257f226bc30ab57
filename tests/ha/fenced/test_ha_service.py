"""Whole groups of three replicas: who is master, and what happens to messages."""

import random
from typing import Final

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced.events import AckDecided, Elected, SteppedDown, TruncationDecided
from ha.fenced.group_view import read_view
from ha.fenced.replica_file import ReplicaRecord
from ha.fenced.replica_role import ReplicaRole
from node.simulated.disk import SimulatedDisk
from store import PutMessageStatus
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from tandem.cluster_file.choices import AckLevel
from tandem.coordinator.kv_records import DeleteOperation, PutOperation
from tandem.wire.group_recovery import Group, plan_recovery
from tandem.wire.group_state import encode_record
from tandem.wire.ha_status import FencedCommand
from tandem.wire.switch_cause import SwitchCause
from tests.ha.fenced_world import COORDINATOR_IP, FencedWorld, Replica, open_world, refused
from tests.ha.world import DIRECTORY, IPS, KEYS
from tests.support.reasons import words

OK = PutMessageStatus.PUT_OK
LATE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def epoch(world: FencedWorld) -> int:
    assert world.state is not None
    return world.state.epoch


def cut_off(world: FencedWorld, replica: Replica, *, coordinator: bool, peers: bool) -> None:
    """Stop everything between a node and the coordinator, the other nodes, or both."""
    ips = [ip for ip in IPS.values() if ip != replica.config.address] if peers else []
    for ip in [*ips, COORDINATOR_IP] if coordinator else ips:
        world.isolate(replica.config.address, ip)


async def recover(world: FencedWorld, *, accept_loss: bool = False) -> None:
    """Do what an operator does with recover-group."""
    snapshot = await world.coordinator.client(world.network.machine("127.0.9.9")).read(KEYS.prefix)
    view = read_view(snapshot, KEYS)
    group = Group(
        name="group",
        state=view.state,
        leader=view.leader,
        nodes=view.nodes,
        lives=view.lives,
        members=tuple(IPS),
    )
    plan = plan_recovery(group, min_isr=2, accept_loss=accept_loss)
    assert plan.state is not None, plan.text
    put = PutOperation(KEYS.state.encode(), encode_record(plan.state))
    world.coordinator.store.transact((), (put,), (), trio.current_time())


# beginning


async def test_a_new_group_elects_a_master_and_replicates(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert (epoch(world), master.epochs_opened) == (1, [1])
        assert await master.send(b"|m1|") is OK
        for slave in world.slaves():
            assert slave.bodies == [b"m1"]
            assert slave.ha.standing.master_name == master.name
            assert slave.ha.standing.master_client_address == master.config.client_address
            assert master.name in refused(slave.ha)
        assert world.masters() == [master]


async def test_a_new_group_waits_for_all_its_nodes(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        a, _ = world.start("a"), world.start("b")
        await trio.sleep(30)
        assert world.state is None
        assert "waiting for c to register" in a.ha.status().refusal
        world.start("c")
        await world.master()


async def test_a_wiped_coordinator_makes_no_new_history(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        for replica in world.replicas.values():
            replica.kill()
        await trio.sleep(20)
        world.coordinator.store.transact((), (), (), trio.current_time())
        del world.coordinator.store._items[KEYS.state.encode()]
        replicas = [world.start(name) for name in IPS]
        await trio.sleep(30)
        assert world.masters() == []
        for replica in replicas:
            assert "recover-group" in replica.ha.status().refusal
            assert replica.bodies == [b"m1"]


@pytest.mark.slow
async def test_an_older_record_of_the_same_epoch_is_not_believed(
    autojump_clock: MockClock,
) -> None:
    """One who has left the set since is a member again, and lacks what was acknowledged."""
    async with open_world() as world:
        master = await world.whole_group()
        backup = world.coordinator.store.image()
        left, other = world.slaves()
        world.isolate(master.config.address, left.config.address)
        await world.wait_for(lambda: left.name not in world.isr)
        assert await master.send(b"|m1|") is OK
        await trio.sleep(2)
        world.coordinator.restore(backup)
        await trio.sleep(0.05)
        master.kill()
        other.kill()
        world.network.heal_all()
        await trio.sleep(30)
        assert world.masters() == []
        assert "has seen change 1 of epoch 1" in left.ha.status().refusal
        for replica in (master, other):
            world.start(replica.name)
        await trio.sleep(30)
        assert world.masters() == []
        await recover(world)
        again = await world.master()
        await world.wait_for(lambda: world.in_sync(again), 60)
        assert again.bodies == [b"m1"]


# failing over


async def test_a_killed_master_is_replaced_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        assert await first.send(b"|m1|") is OK
        killed_at = trio.current_time()
        first.kill()
        world.reap(first.name)
        second = await world.master(but=first.name)
        assert trio.current_time() - killed_at < 1.0
        assert second.bodies == [b"m1"]
        assert await second.send(b"|m2|") is OK
        again = world.start(first.name)
        await world.wait_for(lambda: world.in_sync(second))
        assert again.bodies == [b"m1", b"m2"]
        assert epoch(world) == 2
        assert second.ha.status().last_switch_reason == f"the lease of {first.name} ended"
        assert second.ha.status().last_switch_cause == SwitchCause.LEASE_ENDED


async def test_without_a_supervisor_the_lease_has_to_end(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        killed_at = trio.current_time()
        first.kill()
        world.start(first.name)
        second = await world.master()
        assert 3.0 < trio.current_time() - killed_at < 8.0
        await world.wait_for(lambda: world.in_sync(second))
        assert epoch(world) == 2


async def test_a_clean_stop_hands_over_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        stopped_at = trio.current_time()
        first.scope.cancel()
        await trio.sleep(0.01)
        second = await world.master(but=first.name)
        assert trio.current_time() - stopped_at < 1.0
        assert "is stopping" in second.ha.status().last_switch_reason
        assert second.ha.status().last_switch_cause == SwitchCause.STEPPED_DOWN


async def test_a_master_without_coordinator_steps_down_in_time(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        cut_off(world, first, coordinator=True, peers=False)
        cut_at = trio.current_time()
        assert await first.send(b"|m1|") is OK
        await world.wait_for(lambda: any(isinstance(e, SteppedDown) for e in first.events))
        assert trio.current_time() - cut_at < 4.6
        second = await world.master(but=first.name)
        assert second.bodies == [b"m1"]
        world.network.heal_all()
        await world.wait_for(lambda: world.in_sync(second))


async def test_an_isolated_master_acknowledges_nothing_and_is_cut(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        assert await first.send(b"|m1|") is OK
        cut_off(world, first, coordinator=True, peers=True)
        answers = first.submit(first.put(b"|m-lost|"))
        flushed = first.submit(first.put(b"|m-lost2|"), flushed=True)
        second = await world.master(but=first.name)
        assert await second.send(b"|m2|") is OK
        assert (answers[0][0], flushed[0][0]) == (LATE, LATE)
        assert "may or may not survive" in answers[0][1]
        world.network.heal_all()
        await world.wait_for(lambda: world.in_sync(second))
        assert first.bodies == second.bodies == [b"m1", b"m2"]
        assert [type(e) for e in first.events].count(TruncationDecided) == 1
        kept = world.disks[first.name].list_files("/store/truncated")
        assert len(kept) == 2
        assert first.ha.replica.file.acked <= first.store.max_physical_offset


async def test_a_frozen_master_answers_nothing_when_it_wakes_up(autojump_clock: MockClock) -> None:
    """As seen by it: the boot clock has moved on, and nothing else has."""
    async with open_world() as world:
        first = await world.whole_group()
        answers = first.submit(first.put(b"|m1|"))
        first.boot_offset += 20.0
        assert "lease is over" in refused(first.ha)
        assert first.ha.replicated_where() == first.ha.flushed_everywhere() == -1
        await world.wait_for(lambda: answers)
        assert answers[0][0] is LATE
        assert not any(isinstance(e, AckDecided) for e in first.events)
        await world.master()


async def test_an_election_whose_answer_is_lost_is_won_after_all(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        await first.send(b"|m1|")

        def lose_answer(ip: str, call: str) -> None:
            if call == "transact" and ip != first.config.address and world.leader is None:
                world.coordinator.lost_replies[ip] = 1

        world.coordinator.on_call = lose_answer
        first.kill()
        world.reap(first.name)
        await world.wait_for(lambda: world.leader is not None)
        world.coordinator.on_call = lambda _ip, _call: None
        second = await world.master(but=first.name)
        assert epoch(world) == 2
        assert await second.send(b"|m2|") is OK


@pytest.mark.slow
async def test_idle_switches_do_not_keep_an_isolated_tail(autojump_clock: MockClock) -> None:
    """Three elections with nothing written between them; every epoch is known to everybody."""
    async with open_world() as world:
        first = await world.whole_group()
        await first.send(b"|m1|")
        for number in range(3):
            old = await world.master()
            cut_off(world, old, coordinator=True, peers=True)
            old.put(b"|m-lost%d|" % number)
            old.store.announce()
            new = await world.master(but=old.name)
            world.network.heal_all()
            await world.wait_for(lambda new=new: world.in_sync(new))  # type: ignore[misc]
        for replica in world.replicas.values():
            assert replica.bodies == [b"m1"]
            assert replica.ha.replica.epochs.last_epoch == 4


async def test_one_epoch_has_one_winner(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.whole_group()
        for _ in range(4):
            old = await world.master()
            old.kill()
            world.reap(old.name)
            new = await world.master(but=old.name)
            await new.send(b"|m|")
            world.start(old.name)
            await world.wait_for(lambda new=new: world.in_sync(new))  # type: ignore[misc]
        won = [
            event.epoch
            for replica in world.replicas.values()
            for event in replica.events
            if isinstance(event, Elected)
        ]
        assert len(won) == len(set(won))


# members that are missing


async def test_a_dead_slave_leaves_the_set_and_comes_back(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        slave.kill()
        world.reap(slave.name)
        assert await master.send(b"|m1|") is OK
        assert world.isr == sorted({*IPS} - {slave.name})
        again = world.start(slave.name)
        await world.wait_for(lambda: world.in_sync(master))
        assert again.bodies == [b"m1"]


async def test_a_change_of_the_set_whose_answer_is_lost_is_settled(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        world.coordinator.on_call = lambda ip, call: (
            world.coordinator.lost_replies.update({ip: 1}) if call == "transact" else None
        )
        slave.kill()
        world.reap(slave.name)
        await trio.sleep(3)
        world.coordinator.on_call = lambda _ip, _call: None
        await world.wait_for(lambda: master.ha.refusal() is None)
        assert await master.send(b"|m1|") is OK
        assert len(world.isr) == 2
        assert world.masters() == [master]


async def test_only_the_master_knows_all_that_was_acknowledged(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert master.ha.why_behind() is None
        for slave in world.slaves():
            assert f"that is {master.name}" in words(slave.ha.why_behind())


async def test_too_few_members_are_refused_and_the_set_stays(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        for slave in world.slaves():
            slave.kill()
            world.reap(slave.name)
        await trio.sleep(20)
        assert "1 of at least 2 in-sync replicas are live" in refused(master.ha)
        assert master.ha.refusal().is_short  # type: ignore[union-attr]
        assert len(world.isr) == 2
        assert world.masters() == [master]
        for name in world.isr:
            if name != master.name:
                world.start(name)
        await world.wait_for(lambda: master.ha.refusal() is None)
        assert await master.send(b"|m1|") is OK


async def test_members_lost_while_a_put_waits_are_no_success(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        answers = master.submit(master.put(b"|m1|"))
        for slave in world.slaves():
            slave.kill()
        await world.wait_for(lambda: answers)
        assert answers[0][0] is LATE


async def test_a_master_that_reaches_nobody_resigns(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        cut_off(world, first, coordinator=False, peers=True)
        second = await world.master(but=first.name)
        assert "stepped down" in second.ha.status().last_switch_reason
        # The old master's process lives: it may be a member until it is found to be late.
        await world.wait_for(lambda: first.name not in world.isr)
        assert await second.send(b"|m1|") is OK
        world.network.heal_all()
        await world.wait_for(lambda: world.in_sync(second), 60)
        assert first.bodies == [b"m1"]


async def test_a_master_whose_disk_fails_gives_way(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        first = await world.whole_group()
        world.disks[first.name].sync_fails = True
        first.submit(first.put(b"|m1|"))
        second = await world.master(but=first.name)
        world.disks[first.name].sync_fails = False
        await trio.sleep(10)
        # What its page cache holds need not be on the disk: only a person may start it again.
        assert first.ha.role is ReplicaRole.QUARANTINED
        assert "sound disk" in refused(first.ha)
        assert first.rounds == 1
        assert second.ha.role is ReplicaRole.MASTER
        assert await second.send(b"|m2|") is OK


async def test_one_whose_sync_failed_is_another_replica_at_its_next_start(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        before = slave.ha.replica.file.incarnation
        world.disks[slave.name].sync_fails = True
        assert await master.send(b"|m1|") is OK
        await trio.sleep(2)
        slave.kill()
        world.disks[slave.name].sync_fails = False
        for file in world.disks[slave.name]._files.values():
            file.buffer[: file.size] = file.durable  # the page cache has dropped it
        again = world.start(slave.name)
        await world.wait_for(lambda: world.is_back(again), 60)
        assert again.ha.replica.file.incarnation != before
        assert again.bodies == [b"m1"]


async def test_a_lost_disk_is_another_replica(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        slave = world.slaves()[0]
        before = slave.ha.replica.file.incarnation
        slave.kill()
        del world.disks[slave.name]
        world.disks[slave.name] = type(world.disks[master.name])()
        again = world.start(slave.name)
        await world.wait_for(lambda: world.is_back(again), 60)
        assert again.bodies == [b"m1"]
        assert again.ha.replica.file.incarnation != before
        assert world.state is not None
        assert world.state.isr[slave.name] == again.ha.replica.file.incarnation


async def test_a_machine_that_lost_power_cannot_win(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        slave = world.slaves()[0]
        slave.machine.kill()
        world.disks[slave.name] = world.disks[slave.name].powered_off(random.Random(1))
        slave.scope.cancel()
        again = world.start(slave.name)
        again.boot_id = "boot-2"
        await world.wait_for(lambda: world.is_back(again), 60)
        assert again.bodies == [b"m1"]
        assert again.ha.replica.file.incarnation != slave.ha.replica.file.incarnation


async def test_everything_restarts_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m1|") is OK
        for replica in world.replicas.values():
            replica.kill()
        world.coordinator.stop()
        await trio.sleep(1)
        world.coordinator.start()
        for name in IPS:
            world.start(name)
        master = await world.master()
        assert master.bodies == [b"m1"]
        await world.wait_for(lambda: world.in_sync(master))


# what producers chose


async def test_a_put_that_waits_for_disks_is_on_every_disk(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        for slow in world.replicas.values():
            world.disks[slow.name].sync_seconds = lambda: 0.5
            end = master.put(b"|m1|")
            answers = master.submit(end, flushed=True)
            with trio.fail_after(10):
                while not answers:
                    await trio.sleep(0.001)
            assert answers == [(OK, "")]
            assert all(r.store.flushed_where >= end for r in world.replicas.values())
            world.disks[slow.name].sync_seconds = lambda: 0.0002


async def test_at_the_level_flushed_a_log_that_is_in_memory_only_is_flushed_first(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        for name in IPS:
            world.start(name, ack_level=AckLevel.FLUSHED)
        first = await world.master()
        await world.wait_for(lambda: world.in_sync(first))
        assert await first.send(b"|m1|") is OK
        for slave in world.slaves():
            world.isolate(first.config.address, slave.config.address)
        first.submit(first.put(b"|m2|"))
        first.kill()
        world.network.heal_all()
        world.reap(first.name)
        again = world.start(first.name, ack_level=AckLevel.FLUSHED)
        second = await world.master()
        await world.wait_for(lambda: world.in_sync(second), 60)
        assert again.bodies == second.bodies


async def test_who_joins_has_on_its_disk_what_was_promised_to_be_on_every_disk(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        slave.kill()
        world.reap(slave.name)
        await world.wait_for(lambda: slave.name not in world.isr)
        assert await master.send(b"|m1|", flushed=True) is OK
        again = world.start(slave.name)
        world.disks[slave.name].sync_seconds = lambda: 2.0
        end = master.store.max_physical_offset
        await world.wait_for(lambda: again.serves and again.store.max_physical_offset == end)
        assert again.store.flushed_where < end
        assert slave.name not in world.isr
        await world.wait_for(lambda: slave.name in world.isr)
        assert again.store.flushed_where == end


async def test_a_decision_names_what_it_was_based_on(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        await master.send(b"|m1|")
        decided = [event for event in master.events if isinstance(event, AckDecided)]
        assert decided
        for event in decided:
            assert (event.epoch, event.isr, event.live_count) == (1, tuple(sorted(IPS)), 3)
            assert event.boottime_seconds < event.deadline_seconds


async def test_two_processes_of_one_name_are_not_two_nodes(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        slave = world.slaves()[0]
        slave.kill()
        twin = world.start(slave.name)
        await trio.sleep(1)
        assert twin.ha.session.lease is None
        await world.wait_for(lambda: twin.ha.session.lease is not None)
        assert world.masters() == [master]


# directories and coordinators that come back from a backup


async def with_history(world: FencedWorld) -> SimulatedDisk:
    """A group that has confirmed 25 messages; return an older copy of c's disk, of 5."""
    master = await world.whole_group()
    if master.name == "c":
        await master.ha.command(FencedCommand(command="promote", node="a"))
        master = await world.master(but="c")
        await world.wait_for(lambda: world.in_sync(master))
    for number in range(5):
        assert await master.send(b"|m%d|" % number) is OK
    await trio.sleep(1.0)
    copy = world.disks["c"].crashed()
    for number in range(5, 25):
        assert await master.send(b"|m%d|" % number) is OK
    await trio.sleep(4.0)
    for name in IPS:
        world.replicas[name].kill()
        world.reap(name)
    return copy


ALL: Final = [b"m%d" % number for number in range(25)]


async def test_a_restored_directory_that_starts_first_wins_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.disks["c"] = await with_history(world)
        world.start("c")
        await trio.sleep(15)
        assert not world.masters()
        assert "lost what it had acknowledged" in world.replicas["c"].ha.standing.waits_for
        world.start("a")
        world.start("b")
        master = await world.master(but="c")
        # It may be in the set all the time, and copies the rest there.
        await world.wait_for(lambda: world.replicas["c"].bodies == ALL)
        await world.wait_for(lambda: world.is_back(world.replicas["c"]))
        assert master.bodies == ALL
        assert all(not r.ha.replica.quarantine for r in world.replicas.values())


async def test_a_copy_of_a_moment_ago_that_starts_first_wins_nothing(
    autojump_clock: MockClock,
) -> None:
    """Nothing that was noted since shows that it is one: only another member can."""
    async with open_world() as world:
        master = await world.whole_group()
        if master.name == "c":
            await master.ha.command(FencedCommand(command="promote", node="a"))
            master = await world.master(but="c")
            await world.wait_for(lambda: world.in_sync(master))
        copy = world.disks["c"].crashed()
        assert await master.send(b"|m0|") is OK
        for name in IPS:
            world.replicas[name].kill()
            world.reap(name)
        world.disks["c"] = copy
        world.start("c")
        await trio.sleep(15)
        assert not world.masters()
        assert "2 members of the in-sync set" in world.replicas["c"].ha.standing.waits_for
        world.start("b")
        assert (await world.master()).name == "b"
        world.start("a")
        await world.wait_for(lambda: world.replicas["c"].bodies == [b"m0"])
        await world.wait_for(lambda: world.is_back(world.replicas["c"]))
        assert world.replicas["b"].bodies == [b"m0"]


async def test_a_member_that_never_stopped_needs_nobody_to_become_master(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(b"|m0|") is OK
        left = next(name for name in IPS if name != master.name)
        for name in IPS:
            if name != left:
                world.replicas[name].kill()
        began = trio.current_time()
        for name in IPS:
            if name != left:
                world.reap(name)
        await world.wait_for(lambda: world.leader is not None and world.leader.node == left)
        assert trio.current_time() - began < 0.5


async def forget_lives(world: FencedWorld) -> None:
    """Have the coordinator know of nothing that nodes confirmed: the worst case."""
    for name in IPS:
        operation = DeleteOperation(KEYS.life(name).encode())
        world.coordinator.store.transact((), (operation,), (), trio.current_time())


def forget_own_lives(disk: SimulatedDisk) -> None:
    """Have a directory know of no life that its node has had."""
    path = f"{DIRECTORY}/replica.json"
    record = read_checked_json(disk, path, ReplicaRecord)
    assert record is not None
    record = msgspec.structs.replace(record, life=0, tokens=())
    replace_with_checked_json(disk, path, record)


async def test_a_master_that_lacks_what_was_confirmed_gives_way(autojump_clock: MockClock) -> None:
    """An older copy wins, because nothing of the others was known; nobody is quarantined for it."""
    async with open_world() as world:
        world.disks["c"] = await with_history(world)
        for name in IPS:
            forget_own_lives(world.disks[name])
        await forget_lives(world)
        assert world.state is not None
        one_is_enough = msgspec.structs.replace(world.state, min_isr=1)
        put = PutOperation(KEYS.state.encode(), encode_record(one_is_enough))
        world.coordinator.store.transact((), (put,), (), trio.current_time())
        world.start("c")
        await world.wait_for(lambda: world.leader is not None)
        assert world.leader is not None
        assert world.leader.node == "c"
        world.start("a")
        world.start("b")
        master = await world.master(but="c")
        # It is in the set that it made itself, and there it stays while it copies the rest.
        await world.wait_for(lambda: world.replicas["c"].bodies == ALL)
        await world.wait_for(lambda: world.is_back(world.replicas["c"]))
        assert master.bodies == ALL
        assert all(not r.ha.replica.quarantine for r in world.replicas.values())


@pytest.mark.parametrize("loss_was_accepted", [False, True])
async def test_rejoin_gives_up_nothing_that_was_confirmed_unasked(
    autojump_clock: MockClock, *, loss_was_accepted: bool
) -> None:
    """The older copy is master, has confirmed on its own, and an operator does as he was told."""
    async with open_world() as world:
        copy = await with_history(world)
        for name in ("a", "b"):
            world.coordinator.store.transact(
                (), (DeleteOperation(KEYS.life(name).encode()),), (), trio.current_time()
            )
        world.disks["c"] = copy
        state = world.state
        assert state is not None
        alone = msgspec.structs.replace(state, isr={"c": state.isr["c"]}, version=99)
        if loss_was_accepted:
            alone = msgspec.structs.replace(alone, loss_accepted=state.epoch)
        put = PutOperation(KEYS.state.encode(), encode_record(alone))
        life = DeleteOperation(KEYS.life("c").encode())
        world.coordinator.store.transact((), (put, life), (), trio.current_time())
        forget_own_lives(copy)
        world.start("c", min_isr=1)
        master = await world.master()
        assert await master.send(b"|mine|") is OK
        a = world.start("a")
        await world.wait_for(lambda: a.serves and a.ha.replica.quarantine)
        if loss_was_accepted:
            # The master stays, and notes how far it has confirmed: that is not what is at stake.
            await trio.sleep(4)
        refused = await a.ha.command(FencedCommand(command="rejoin"))
        assert not refused.done
        assert refused.lost_messages >= 20
        assert "--accept-loss" in refused.text
        assert "recover-group" in refused.text
        assert "was confirmed (by a)" in refused.text
        assert a.ha.replica.quarantine
        accepted = await a.ha.command(FencedCommand(command="rejoin", accept_loss=True))
        assert accepted.done
        assert accepted.lost_messages == refused.lost_messages


async def test_recover_group_takes_the_log_of_a_node_in_quarantine(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        copy = await with_history(world)
        state = world.state
        assert state is not None
        await forget_lives(world)
        alone = msgspec.structs.replace(state, isr={"c": state.isr["c"]}, version=99)
        put = PutOperation(KEYS.state.encode(), encode_record(alone))
        world.coordinator.store.transact((), (put,), (), trio.current_time())
        forget_own_lives(copy)
        world.disks["c"] = copy
        world.start("c", min_isr=1)
        master = await world.master()
        assert await master.send(b"|mine|") is OK
        a, b = world.start("a"), world.start("b")
        await world.wait_for(lambda: a.serves and a.ha.replica.quarantine)
        await world.wait_for(lambda: b.serves and b.ha.replica.quarantine)
        await trio.sleep(4)
        master.kill()
        world.reap("c")
        await recover(world, accept_loss=True)
        chosen = await world.master(but="c")
        assert chosen.bodies == ALL
        await world.wait_for(lambda: a.bodies == b.bodies == ALL)
        assert not a.ha.replica.quarantine
        assert not b.ha.replica.quarantine
