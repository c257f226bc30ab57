"""promote, resign, rejoin: what is done, what is refused, and the numbers that are named."""

from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.fenced.commands import FencedCommands
from ha.fenced.group_view import GroupView
from ha.fenced.healing_service import HealingService
from ha.fenced.leadership import Leadership
from ha.fenced.replica_parts import ReplicaParts
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.round_end import RoundEnd
from ha.fenced.standing import Parting
from store import PutMessageStatus
from tandem.wire.group_state import GroupState, LeaderRecord, LifeRecord, NodeRecord
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.switch_cause import SwitchCause
from tests.ha.fenced_world import COORDINATOR_IP, FencedWorld, Replica, open_world, refused
from tests.ha.fingerprinted import flip
from tests.ha.healing_world import open_group
from tests.ha.world import FILE_SIZE_BYTES, fenced_config
from tests.support.reasons import words

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
        assert status.last_switch_cause == SwitchCause.PROMOTED
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


async def test_where_a_loss_may_still_be_accepted_later_nothing_is_taken_any_more(
    autojump_clock: MockClock,
) -> None:
    """The order is on its way to the coordinator when the way is cut."""
    async with open_world() as world:
        master = await world.whole_group()
        slave = behind(world, master)
        await world.wait_for(lambda: slave.name not in world.isr)
        assert await master.send(b"|m1|") is OK

        def cut(ip: str, call: str) -> None:
            if call == "transact" and ip == master.config.address:
                world.network.stall(ip, COORDINATOR_IP)

        world.coordinator.on_call = cut
        result = await order(master, "promote", slave.name, accept_loss=True)
        assert not result.done
        assert "may still happen" in result.text
        assert master.ha.role is not ReplicaRole.MASTER
        assert refused(master.ha)


async def test_a_damaged_member_is_not_promoted_before_it_has_healed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def heal(_: HealingService) -> None:
        """Heal nothing."""

    monkeypatch.setattr(HealingService, "heal", heal)
    async with open_world() as world:
        master = await world.whole_group()
        assert await master.send(bytes(100)) is OK
        slave = world.slaves()[0]
        slave.store.commit_log.damage.note(0, 100, "a bit has flipped")
        await world.wait_for(lambda: (v := master.ha.session.view) and v.nodes[slave.name].damage)
        result = await order(master, "promote", slave.name)
        assert not result.done
        assert "damaged from 0 to 100" in result.text
        slave.store.commit_log.damage.healed(0, 100)
        await world.wait_for(
            lambda: (v := master.ha.session.view) and not v.nodes[slave.name].damage
        )
        assert (await order(master, "promote", slave.name)).done


async def test_a_scrub_finds_what_has_changed_at_rest_and_it_is_healed(
    autojump_clock: MockClock,
) -> None:
    async with open_group() as group:
        node = group.first.ha
        flip(group.first.store, FILE_SIZE_BYTES + 5_000)
        assert (await order(group.first, "scrub")).done
        await group.world.wait_for(lambda: "1 bad ranges found" in node.status().scrub)
        await group.healed(group.first)
        assert "scrub" in node.status().healed[-1].reason
        assert (await order(group.first, "scrub")).done
        await group.world.wait_for(lambda: "up to" in node.status().scrub, 100)
        assert "0 bad ranges found" in node.status().scrub


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
        await trio.sleep(0.5)  # until the others have published that they are complete
        result = await order(first, "resign")
        assert result.done, result.text
        second = await world.master(but=first.name)
        assert "an operator asked it to resign" in second.ha.status().last_switch_reason
        assert second.ha.status().last_switch_cause == SwitchCause.STEPPED_DOWN
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


# what a store that is to be set aside may hold alone

END: Final = 1000
NOT_COMPARED: Final = Parting(0, -1)


def node(name: str, *, end: int = END, confirm: int = 0) -> NodeRecord:
    return NodeRecord(
        node=name, session="s", incarnation=f"{name}1", epoch=5, end=end, confirm=confirm
    )


def group(*nodes: NodeRecord, isr: str = "bc", **changes: Any) -> GroupView:  # noqa: ANN401
    """Node b leads epoch 5."""
    view = GroupView(
        revision=9,
        state=GroupState(epoch=5, master="b", isr={name: f"{name}1" for name in isr}, min_isr=2),
        leader=LeaderRecord(node="b", session="s", epoch=5),
        nodes={each.node: each for each in nodes or (node("a"), node("b"), node("c"))},
    )
    return msgspec.structs.replace(view, **changes)


def follower(*, epoch: int = 5, link_up: bool = True, equal_below: int = END) -> SimpleNamespace:
    return SimpleNamespace(epoch=epoch, link_up=link_up, equal_below=equal_below)


def risk(
    view: GroupView,
    *,
    confirm: int = 0,
    follows: SimpleNamespace | None = None,
    parting: Parting = NOT_COMPARED,
) -> tuple[str | None, int]:
    """Ask node a, whose log has `END` bytes."""
    parts = SimpleNamespace(
        config=fenced_config("a"),
        store=SimpleNamespace(
            min_physical_offset=100, max_physical_offset=END, confirm_offset=confirm
        ),
        session=None,
        replica=SimpleNamespace(file=SimpleNamespace(incarnation="a1")),
        standing=SimpleNamespace(follower=follows, parting=parting),
    )
    return commands_of(parts)._risk_of_rejoin(view, END)


def commands_of(parts: SimpleNamespace) -> FencedCommands:
    """What is asked about `parts` alone: nothing begins and nothing ends by it."""
    return FencedCommands(
        cast("ReplicaParts", parts),
        cast("Leadership", None),
        cast("RoundEnd", None),
    )


def test_a_log_that_the_master_has_is_not_needed() -> None:
    assert risk(group(), confirm=800, follows=follower()) == (None, END)
    assert risk(group(), confirm=800, parting=Parting(5, 800)) == (None, END)


def test_without_a_master_a_log_is_needed() -> None:
    why, start = risk(group(leader=None), follows=follower())
    assert "there is no master" in words(why)
    assert start == 100


def test_what_this_node_has_confirmed_and_the_master_lacks_is_needed() -> None:
    why, start = risk(group(), confirm=800, parting=Parting(5, 500))
    assert "everything below 800 was confirmed (by a)" in words(why)
    assert "parts from this one at 500" in words(why)
    assert start == 500


def test_what_another_has_confirmed_and_the_master_lacks_is_needed() -> None:
    gone = LifeRecord(node="c", life=1, token="t", incarnation="c1", epoch=5, confirm=800)
    for view in (
        group(node("a"), node("b"), node("c", confirm=800)),
        group(node("a"), node("b"), lives={"c": gone}),
    ):
        why, start = risk(view, parting=Parting(5, 500))
        assert "everything below 800 was confirmed (by c)" in words(why)
        assert start == 500


def test_a_comparison_with_the_log_of_another_epoch_does_not_count() -> None:
    older = follower(epoch=4)
    for follows, parting in (
        (None, Parting(4, END)),
        (older, Parting(4, END)),
        (None, Parting(0, -1)),
    ):
        why, start = risk(group(), confirm=800, follows=follows, parting=parting)
        assert "has not been compared with this one yet" in words(why)
        assert start == 100


def test_a_follower_without_a_link_knows_what_was_compared() -> None:
    cut_off = follower(link_up=False, equal_below=500)
    assert risk(group(), confirm=800, follows=cut_off)[1] == 500
    assert risk(group(), confirm=500, follows=cut_off) == (None, END)


def test_of_the_in_sync_set_as_many_have_to_be_left_as_a_put_needs() -> None:
    follows = follower()
    members = group(isr="abc")
    assert risk(members, follows=follows)[0] is None
    two = group(node("a"), node("b", end=700), isr="abc")
    why, start = risk(two, follows=follows)
    assert "only 1 other members live (b), of at least 2" in words(why)
    assert start == 700
    another = msgspec.structs.replace(node("c"), incarnation="c2")
    assert risk(group(node("a"), node("b", end=700), another, isr="abc"), follows=follows) == (
        why,
        700,
    )


async def test_a_node_that_runs_for_master_meanwhile_keeps_its_store() -> None:
    standing = SimpleNamespace(role=ReplicaRole.FOLLOWER, follower=follower(), parting=NOT_COMPARED)
    set_aside: list[str] = []

    async def refresh() -> GroupView:
        await trio.lowlevel.checkpoint()
        standing.role = ReplicaRole.CANDIDATE
        return group()

    parts = SimpleNamespace(
        config=fenced_config("a"),
        store=SimpleNamespace(min_physical_offset=0, max_physical_offset=END, confirm_offset=0),
        session=SimpleNamespace(refresh=refresh),
        replica=SimpleNamespace(
            file=SimpleNamespace(incarnation="a1"), want_set_aside=set_aside.append
        ),
        standing=standing,
    )
    result = await commands_of(parts).carry_out(FencedCommand(command="rejoin"))
    assert not result.done
    assert "have it resign first" in result.text
    assert set_aside == []
