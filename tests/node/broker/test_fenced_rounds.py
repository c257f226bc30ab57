from itertools import count, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import node.broker.fenced_rounds
from ha.fenced.group_view import read_view
from ha.fenced.ha_service import FencedHAService
from ha.replication import ReplicationListener
from node.remoting.remoting_client import RequestFailedError
from store.machine.errors import RecordDamagedError
from store.machine.network import ConnectionLost
from tandem.coordinator.interface import Put
from tandem.wire.group_recovery import Group, plan_recovery
from tandem.wire.group_state import GroupKeys, encode_record
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.node.world import COORDINATOR, NAMES, Caller, World, bodies, fenced_cluster, open_world
from tests.support.logged import logged
from tests.support.patience import PATIENCE_SECONDS

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
CREATE = CreateTopicRequestHeader("Wide", "TBW102", 12, 12, 6, "SINGLE_TAG", 0, order=False)

pytestmark = pytest.mark.slow


async def send(world: World, name: str, body: bytes) -> RemotingCommand:
    async with world.client(world.address(name)) as client:
        return await client.send(body)


async def send_until_taken(world: World, body: bytes, *names: str) -> str:
    """As a producer does: ask one node after the other; return who took it."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            for name in names or NAMES:
                try:
                    answer = await send(world, name, body)
                except (ConnectionLost, RequestFailedError):
                    continue
                if answer.code == 0:
                    return name
            await trio.sleep(0.02)


async def committed(client: Caller, queue_id: int = 0) -> int:
    answer = await client.call(QUERY, QueryConsumerOffsetRequestHeader("g", "T", queue_id))
    assert answer.code == 0, answer.remark
    return answer.decode_header(OffsetResponseHeader).offset


def others(name: str) -> list[str]:
    return [other for other in NAMES if other != name]


async def test_one_node_is_elected_and_takes_messages_that_all_serve(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            for number in range(5):
                answer = await client.send(b"%d" % number)
                assert answer.code == 0, answer.remark
        await trio.sleep(2)
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                assert bodies(await client.pull()) == [b"0", b"1", b"2", b"3", b"4"]
                ids = {int(other[1]): f"{world.address(other)}:10911" for other in others(master)}
                assert await client.route("T") == {0: f"{world.address(master)}:10911", **ids}
                assert await client.route(JOURNAL_TOPIC) == {}


async def test_every_node_tells_when_the_first_message_was_stored(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"one")).code == 0
        await trio.sleep(2)
        times = set()
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                times.add(await client.earliest_store_time())
        assert len(times) == 1
        assert min(times) > 0


async def test_a_node_that_is_not_the_master_refuses_and_names_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        await trio.sleep(2)
        for name in others(master):
            answer = await send(world, name, b"x")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert master in (answer.remark or "")
            assert f"{world.address(master)}:10911" in (answer.remark or "")


async def test_a_killed_master_is_replaced_and_nothing_it_answered_is_missing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        epoch = (await world.status(master)).epoch
        async with world.client(world.address(master)) as client:
            assert (await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == 0
            assert (await client.send(b"kept")).code == 0
            commit = UpdateConsumerOffsetRequestHeader("g", "T", 0, 1)
            assert (await client.call(COMMIT, commit)).code == 0
        await world.kill(master)
        killed_at = trio.current_time()
        successor = await world.master(*others(master), after=epoch)
        assert trio.current_time() - killed_at < 8
        async with world.client(world.address(successor)) as client:
            assert bodies(await client.pull()) == [b"kept"]
            assert await committed(client) == 1
            wide = SendMessageRequestHeaderV2("PG", "Wide", "none", 4, 11, 0, 1, 0)
            assert (await client.call(RequestCode.SEND_MESSAGE_V2, wide, b"w")).code == 0
            assert (await client.send(b"next")).code == 0
        await world.start(master)
        await trio.sleep(3)
        assert (await world.status(master)).role == "FOLLOWER"
        assert sorted((await world.status(successor)).isr) == list(NAMES)
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                assert (await client.route("T"))[0] == f"{world.address(successor)}:10911"
                assert bodies(await client.pull()) == [b"kept", b"next"]


async def test_clients_find_the_new_master_as_soon_as_it_is_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"x")).code == 0
        await world.kill(master)
        successor = await world.master(*others(master))
        await trio.sleep(0.1)
        for name in others(master):
            async with world.client(world.address(name), 9876) as client:
                assert (await client.route("T"))[0] == f"{world.address(successor)}:10911"


async def test_a_master_without_its_coordinator_begins_again_in_the_same_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"kept")).code == 0
        for ends in ((world.address(master), COORDINATOR), (COORDINATOR, world.address(master))):
            world.network.stall(*ends)
        successor = await send_until_taken(world, b"next", *others(master))
        await trio.sleep(6)
        async with world.client(world.address(master), 9876) as client:
            assert (await client.route("T"))[0] == f"{world.address(successor)}:10911"
        for ends in ((world.address(master), COORDINATOR), (COORDINATOR, world.address(master))):
            world.network.heal(*ends)
        await trio.sleep(10)
        status = await world.status(master)
        assert (status.role, status.master) == ("FOLLOWER", successor)
        async with world.client(world.address(master)) as client:
            assert bodies(await client.pull()) == [b"kept", b"next"]


async def test_a_stopped_master_leaves_the_others_to_elect(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"kept")).code == 0
        await world.stop(master)
        await send_until_taken(world, b"next", *others(master))


async def test_delayed_messages_are_delivered_by_the_next_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        header = SendMessageRequestHeaderV2(
            "PG", "T", "TBW102", 4, 0, 0, 1, 0, "DELAY\x014\x02"
        )  # 30 s
        async with world.client(world.address(master)) as client:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"later")
            assert answer.code == 0, answer.remark
        await world.kill(master)
        successor = await world.master(*others(master))
        await trio.sleep(60)
        async with world.client(world.address(successor)) as client:
            assert bodies(await client.pull()) == [b"later"]


async def test_a_delivery_that_was_cut_off_is_done_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A master without its group saves how far it has delivered; nothing of that was confirmed."""
    config = fenced_cluster(tmp_path)
    async with open_world(config) as world:
        await world.start(*NAMES)
        master = await world.master()
        header = SendMessageRequestHeaderV2(
            "PG", "T", "TBW102", 4, 0, 0, 1, 0, "DELAY\x014\x02"
        )  # 30 s
        async with world.client(world.address(master)) as client:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"later")
            assert answer.code == 0, answer.remark
        await trio.sleep(10)
        for name in NAMES:
            await world.kill(name)
            path = f"{config.node(name).directory}/config/delayOffset.json"
            world.disks[name].replace(path, b'{"dataVersion":{},"offsetTable":{"4":1}}')
            world.disks[name].remove(f"{path}.crc")
        await world.start(*NAMES)
        successor = await world.master()
        await trio.sleep(60)
        async with world.client(world.address(successor)) as client:
            assert bodies(await client.pull()) == [b"later"]


async def order(world: World, name: str, command: FencedCommand) -> FencedCommandResult:
    async with world.client(world.address(name)) as client:
        answer = await client.call_signed(
            RequestCode.FENCED_COMMAND,
            body=msgspec.json.encode(command),
            target=f"{world.address(name)}:10911",
        )
        assert answer.code == 0, answer.remark
        return msgspec.json.decode(answer.body, type=FencedCommandResult)


async def test_an_operator_moves_the_master(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"kept")).code == 0
        await trio.sleep(3)
        epoch = (await world.status(master)).epoch
        wanted = others(master)[-1]
        result = await order(world, master, FencedCommand(command="promote", node=wanted))
        assert result.done, result.text
        assert await world.master(wanted, after=epoch) == wanted
        await trio.sleep(2)
        async with world.client(world.address(master)) as client:
            assert (await client.route("T"))[0] == f"{world.address(wanted)}:10911"
            assert bodies(await client.pull()) == [b"kept"]


async def test_puts_that_wait_when_their_master_is_none_any_more_are_answered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"first")).code == 0
        await trio.sleep(2)
        async with world.client(world.address(master)) as client:
            for other in (*(world.address(name) for name in others(master)), COORDINATOR):
                world.network.stall(world.address(master), other)
                world.network.stall(other, world.address(master))
            await trio.sleep(2.5)
            began = trio.current_time()
            answer = await client.send(b"who knows")
            assert trio.current_time() - began < 2.9
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_disks_of_all_replicas_can_be_waited_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        header = SendMessageRequestHeaderV2(
            "PG", "T", "TBW102", 4, 0, 0, 1, 0, "TANDEM_ACK\x01flushed\x02"
        )
        async with world.client(world.address(master)) as client:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"x")
            assert answer.code == 0, answer.remark
        for name in NAMES:
            status = await world.status(name)
            assert status.flushed == status.log_end


async def test_a_node_in_quarantine_says_so_and_is_in_no_route(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas: dict[str, FencedHAService] = {}

    class Watched(FencedHAService):
        async def run(
            self,
            listener: ReplicationListener,
            *,
            task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        ) -> None:
            replicas[self.config.name] = self
            await super().run(listener, task_status=task_status)

    monkeypatch.setattr(node.broker.fenced_rounds, "FencedHAService", Watched)
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"x")).code == 0
        await trio.sleep(1)
        name = others(master)[0]
        commands = replicas[name]._commands
        assert commands is not None
        commands._round_end.quarantine("its log says otherwise")
        await trio.sleep(0.1)
        assert (await world.status(name)).role == "QUARANTINED"
        async with world.client(world.address(name)) as client:
            for answer in (await client.pull(), await client.send(b"y")):
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "its log says otherwise" in (answer.remark or "")
            assert f"{world.address(name)}:10911" not in (await client.route("T")).values()
        async with world.client(world.address(master)) as client:
            assert f"{world.address(name)}:10911" not in (await client.route("T")).values()


async def test_a_learner_copies_the_confirmed_log_of_whoever_is_master(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path, learners="10.0.0.7")) as world:
        await world.start(*NAMES)
        master = await world.master()
        learner = world.network.machine("10.0.0.7")
        stream = await learner.connect(world.address(master), 10912, source="10.0.0.7")
        await stream.send_all(bytes(8))
        assert (await send(world, master, b"for the learner")).code == 0
        received = bytearray()
        with trio.move_on_after(2):
            while True:
                received += await stream.receive_some(1000)
        assert b"for the learner" in received
        assert sorted((await world.status(master)).isr) == list(NAMES)
        await stream.aclose()


async def test_rounds_that_end_soon_are_spaced(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []

    async def fail_at_once(*_: object) -> None:
        starts.append(trio.current_time())
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(node.broker.fenced_rounds, "_run_round", fail_at_once)
    async with open_world(fenced_cluster(tmp_path)) as world:
        with trio.move_on_after(60):
            await world.start("a1")
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses[0] < 0.1
    assert all(later > earlier - 0.001 for earlier, later in pairwise(pauses))
    assert 4.9 < pauses[-1] < 5.1


async def test_tables_survive_a_restart_of_all_nodes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert (await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)).code == 0
            assert (await client.send(b"kept")).code == 0
            commit = UpdateConsumerOffsetRequestHeader("g", "T", 0, 1)
            assert (await client.call(COMMIT, commit)).code == 0
        for name in NAMES:
            await world.stop(name)
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert await committed(client) == 1
            assert await client.route("Wide") != {}
            assert bodies(await client.pull()) == [b"kept"]


async def test_a_first_message_of_a_topic_brings_the_topic_along(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"first")).code == 0
        await world.kill(master)
        successor = await world.master(*others(master))
        header = SendMessageRequestHeaderV2("PG", "T", "no such topic", 4, 3, 0, 1, 0)
        async with world.client(world.address(successor)) as client:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"second")
            assert answer.code == 0, answer.remark


async def test_a_node_whose_disk_is_full_comes_back_when_there_is_room(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        first = await world.master()
        disk = world.disks[first]
        disk.capacity_bytes = disk.used_bytes
        await order(world, first, FencedCommand(command="resign"))
        assert await world.master(*others(first)) != first
        await trio.sleep(12)
        disk.capacity_bytes = 1 << 40
        await trio.sleep(12)
        assert (await world.status(first)).role == "FOLLOWER"
        assert first in (await world.status(await world.master())).isr


TERMINALS = count(100)
"""Each order comes from a machine of its own."""


async def recover(world: World, *, accept_loss: bool) -> str:
    """Do what an operator does with recover-group; return why it was refused, "" if it was not."""
    terminal = f"10.0.0.{next(TERMINALS)}"
    coordinator = world.coordinator.client(world.network.machine(terminal))
    keys = GroupKeys("DefaultCluster", "broker-a")
    view = read_view(await coordinator.read(keys.prefix), keys)
    group = Group(
        name="broker-a",
        state=view.state,
        leader=view.leader,
        nodes=view.nodes,
        lives=view.lives,
        members=NAMES,
    )
    plan = plan_recovery(group, min_isr=2, accept_loss=accept_loss)
    if plan.state is None:
        return plan.text
    await coordinator.transact([], [Put(keys.state, encode_record(plan.state))])
    return ""


async def test_offsets_are_not_ahead_of_a_log_that_lost_its_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """All disks go back in time: the tables were kept, the messages they speak of were not.

    All nodes have confirmed more than their logs hold, so an operator has to accept that.
    """
    config = fenced_cluster(tmp_path)
    async with open_world(config) as world:
        await world.start(*NAMES)
        master = await world.master()
        assert (await send(world, master, b"kept")).code == 0
        async with world.client(world.address(master)) as client:
            assert (
                await client.call(COMMIT, UpdateConsumerOffsetRequestHeader("g", "T", 0, 1))
            ).code == 0
        await trio.sleep(7)
        flushed = {name: world.disks[name].crashed() for name in NAMES}
        assert (await send(world, master, b"lost")).code == 0
        async with world.client(world.address(master)) as client:
            assert (
                await client.call(COMMIT, UpdateConsumerOffsetRequestHeader("g", "T", 0, 2))
            ).code == 0
        await trio.sleep(7)
        for name in NAMES:
            await world.kill(name)
            path = f"{config.node(name).directory}/config/groupJournal.json"
            tables = world.disks[name].read(path)
            assert tables is not None
            world.disks[name] = flushed[name]
            world.disks[name].replace(path, tables)
        await world.start(*NAMES)
        await trio.sleep(10)
        assert "MASTER" not in [(await world.status(name)).role for name in NAMES]
        assert not await recover(world, accept_loss=True)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert await committed(client) == 1
            assert bodies(await client.pull()) == [b"kept"]
            assert (await client.send(b"next")).code == 0
            assert bodies(await client.pull(offset=1)) == [b"next"]


async def test_what_was_flushed_is_there_after_a_power_cut_of_all_and_a_recovery(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(fenced_cluster(tmp_path)) as world:
        await world.start(*NAMES)
        first = await world.master()
        header = SendMessageRequestHeaderV2(
            "PG", "T", "TBW102", 4, 0, 0, 1, 0, "TANDEM_ACK\x01flushed\x02"
        )
        async with world.client(world.address(first)) as client:
            answer = await client.call(RequestCode.SEND_MESSAGE_V2, header, b"kept")
            assert answer.code == 0, answer.remark
        for name in NAMES:
            await world.power_off(name)
        await world.start(*NAMES)
        await trio.sleep(15)
        assert "MASTER" not in [(await world.status(name)).role for name in NAMES]
        assert "--accept-loss" in await recover(world, accept_loss=False)
        assert not await recover(world, accept_loss=True)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            assert bodies(await client.pull()) == [b"kept"]


async def test_a_damaged_record_that_a_master_needs_ends_a_round_and_not_the_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that knows only a part of the journal would write what is older."""
    rounds = count(1)
    stop = trio.Event()

    async def run_round(*_: object) -> None:
        if next(rounds) == 3:
            stop.set()
            return
        async with trio.open_nursery():
            raise RecordDamagedError(JOURNAL_TOPIC, 0, 7, 1234, "a test")

    monkeypatch.setattr(node.broker.fenced_rounds, "_run_round", run_round)
    nothing: Any = None
    with trio.fail_after(PATIENCE_SECONDS):
        await node.broker.fenced_rounds.run_fenced_rounds(
            nothing, nothing, nothing, nothing, nothing, stop, lambda: None
        )
    assert len(logged(caplog, "node.broker.fenced_rounds")) == 2
