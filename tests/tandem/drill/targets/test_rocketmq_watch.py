"""What brokers and their controller say, in the words that a drill has for ours."""

import functools

import msgspec
import pytest
import trio
import trio.testing

from tandem.cluster_file.choices import GroupKind
from tandem.drill.recording import Recording
from tandem.drill.targets import rocketmq_watch
from tandem.drill.targets.rocketmq_layout import Mode
from tandem.drill.targets.rocketmq_watch import (
    NoAnswerError,
    Replica,
    SyncState,
    WatchedBrokers,
    as_given,
    ask,
    knows_topic,
    leader_of,
    sync_state,
    watch_broker,
    watch_controllers,
)
from tandem.drill.watched_group import NO_BOUND
from tandem.drill.workload import Clock
from tandem.wire.remoting_command import FRAME_HEAD, RemotingCommand, encode_frame
from tandem.wire.request_headers import HAClientRuntimeInfo, HARuntimeInfo
from tests.support.patience import until
from tests.tandem.drill.targets.rocketmq_samples import layout


def world(mode: Mode = Mode.CONTROLLER) -> tuple[Recording, WatchedBrokers, list[str]]:
    group = layout(mode).group
    recording = Recording(Clock(0.0, 0.0), group)
    brokers = WatchedBrokers(group.nodes, recording.replication, recording.watched)
    return recording, brokers, [node.client_address for node in group.nodes]


def master_of(end: int) -> HARuntimeInfo:
    return HARuntimeInfo(master=True, master_commit_log_max_offset=end)


def slave_of(end: int) -> HARuntimeInfo:
    return HARuntimeInfo(master=False, ha_client_runtime_info=HAClientRuntimeInfo(max_offset=end))


def elected(addresses: list[str], master: int, epoch: int, *in_sync: int) -> SyncState:
    return SyncState(
        master_address=addresses[master],
        master_epoch=epoch,
        in_sync_replicas=[Replica(broker_address=addresses[n]) for n in in_sync],
    )


def test_a_switch_is_the_same_history_as_one_of_ours() -> None:
    recording, brokers, at = world()
    watched = recording.watched
    assert watched is not None
    brokers.controller_said(0, 0, elected(at, 0, 1, 0, 1))
    brokers.broker_said(0, 0, "broker-r-0", master_of(100))
    assert watched.master == "broker-r-0"

    brokers.controller_said(5, 5, SyncState(master_address=None, master_epoch=2))
    assert watched.master == ""
    brokers.controller_said(6, 6, elected(at, 1, 3, 1))
    brokers.broker_said(6, 6, "broker-r-1", master_of(120))

    assert watched.master == "broker-r-1"
    kinds = [(change.kind, change.node, change.epoch) for change in recording.history]
    assert ("leader-gone", "broker-r-0", 1) in kinds
    assert ("epoch", "broker-r-1", 3) in kinds
    assert ("open", "broker-r-1", 3) in kinds


def test_a_former_master_that_still_says_so_is_not_the_master_of_the_new_epoch() -> None:
    recording, brokers, at = world()
    watched = recording.watched
    assert watched is not None
    brokers.controller_said(0, 0, elected(at, 0, 1, 0, 1))
    brokers.broker_said(0, 0, "broker-r-0", master_of(100))
    brokers.controller_said(5, 5, elected(at, 1, 2, 1))
    brokers.broker_said(5, 5, "broker-r-1", master_of(100))
    brokers.broker_said(6, 6, "broker-r-0", master_of(101))

    assert watched.master == "broker-r-1"
    assert sorted(watched.masters) == ["broker-r-0", "broker-r-1"]


def test_who_is_not_in_the_set_is_not_in_sync_however_long_its_log_is() -> None:
    recording, brokers, at = world()
    brokers.controller_said(0, 0, elected(at, 0, 1, 0, 1))
    for node, info in (
        ("broker-r-1", slave_of(100)),
        ("broker-r-2", slave_of(100)),
        ("broker-r-0", master_of(100)),
    ):
        brokers.broker_said(0, 0, node, info)

    states = recording.replication.states
    assert states["broker-r-1"].connected
    assert not states["broker-r-2"].connected
    assert not recording.replication.behind_at_most(0)
    brokers.controller_said(1, 1, elected(at, 0, 1, 0, 1, 2))
    brokers.broker_said(1, 1, "broker-r-0", master_of(100))
    assert recording.replication.behind_at_most(0)


def test_slaves_of_a_classic_master_are_known_by_their_own_word() -> None:
    recording, brokers, _ = world(Mode.SYNC_MASTER)
    brokers.broker_said(0, 0, "broker-r-1", slave_of(40))
    brokers.broker_said(0, 0, "broker-r-2", slave_of(100))
    brokers.broker_said(0, 0, "broker-r-0", master_of(100))

    assert recording.watched is None
    assert recording.replication.states["broker-r-1"].lag_bytes == 60
    assert recording.replication.states["broker-r-2"].lag_bytes == 0
    brokers.broker_said(1, 1, "broker-r-0", None)
    assert not recording.replication.master_answers


def test_logs_of_rocketmq_are_compared_to_their_ends() -> None:
    recording, brokers, at = world()
    brokers.controller_said(0, 0, elected(at, 0, 1, 0))
    brokers.broker_said(0, 0, "broker-r-0", master_of(100))
    recording.note_end()
    assert (recording.master, recording.confirm) == ("broker-r-0", NO_BOUND)


async def serve(answer: bytes, stream: trio.SocketStream) -> None:
    async with stream:
        await stream.receive_some()
        if answer:
            await stream.send_all(answer)


async def answering(nursery: trio.Nursery, answer: bytes) -> str:
    handler = functools.partial(serve, answer)
    (listener,) = await nursery.start(
        functools.partial(trio.serve_tcp, handler, 0, host="127.0.0.1")
    )
    return f"127.0.0.1:{listener.socket.getsockname()[1]}"


async def test_the_state_of_a_group_is_read_from_the_answer(nursery: trio.Nursery) -> None:
    table = {
        "replicasInfoTable": {
            "broker-r": {
                "masterAddress": "127.9.9.2:10911",
                "masterBrokerId": 1,
                "masterEpoch": 4,
                "syncStateSetEpoch": 7,
                "inSyncReplicas": [
                    {"alive": True, "brokerAddress": "127.9.9.2:10911", "brokerId": 1}
                ],
                "notInSyncReplicas": None,
            }
        }
    }
    answer = RemotingCommand(0, 1, flag=1, body=msgspec.json.encode(table))
    address = await answering(nursery, encode_frame(answer))

    state = await sync_state(address, "broker-r")

    assert state is not None
    assert (state.master_epoch, len(state.in_sync_replicas or [])) == (4, 1)
    assert await knows_topic(address, "any")
    assert await sync_state(address, "another") is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0\0",
        FRAME_HEAD.pack(2**31, 0),
        FRAME_HEAD.pack(3, 0),
        FRAME_HEAD.pack(8, 4) + b"{{{{",
        encode_frame(RemotingCommand(0, 1, flag=1, body=b"[1]")),
        encode_frame(RemotingCommand(2007, 1, flag=1)),
    ],
)
async def test_what_is_no_answer_is_nothing_that_is_known(
    answer: bytes, nursery: trio.Nursery
) -> None:
    address = await answering(nursery, answer)
    assert await sync_state(address, "broker-r") is None


def says_that_it_leads(says: str, code: int = 0) -> bytes:
    return encode_frame(RemotingCommand(code, 1, flag=1, ext={"isLeader": says}))


async def test_of_several_controllers_the_one_that_says_it_leads_is_asked(
    nursery: trio.Nursery,
) -> None:
    follower = await answering(nursery, says_that_it_leads("false"))
    refuses = await answering(nursery, says_that_it_leads("true", code=1))
    leader = await answering(nursery, says_that_it_leads("true"))
    others = [follower, "127.0.0.1:1", refuses, await answering(nursery, b"")]
    assert await leader_of([*others, leader]) == leader
    assert await leader_of(others) == ""


async def test_without_a_leader_nothing_is_known_of_the_group(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, brokers, _ = world()
    said: list[SyncState | None] = []
    monkeypatch.setattr(brokers, "controller_said", lambda *words: said.append(words[2]))
    silent = ["127.0.0.1:1", "127.0.0.2:1"]
    nursery.start_soon(watch_controllers, silent, "broker-r", brokers, recording.clock)
    await until(lambda: bool(said))
    assert said[0] is None


async def test_nobody_who_listens_is_no_answer() -> None:
    with pytest.raises(NoAnswerError):
        await ask("127.0.0.1:1", 1)


class Silent:
    async def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        await trio.sleep_forever()
        raise AssertionError


async def test_a_frozen_broker_is_known_by_its_silence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    recording, brokers, _ = world(Mode.SYNC_MASTER)
    node = layout(Mode.SYNC_MASTER).group.nodes[0]
    with trio.move_on_after(5):
        await watch_broker(Silent(), node, brokers, recording.clock)
    assert not recording.replication.master_answers
    assert recording.replication.sampled_at > 0


def test_settings_that_a_broker_did_not_take_are_named() -> None:
    given = {"inSyncReplicas": "2", "noSuchThing": "1", "flushDiskType": "SYNC_FLUSH"}
    said = {"inSyncReplicas": "1", "flushDiskType": "SYNC_FLUSH"}
    found = as_given(given, said)
    assert len(found) == 2
    assert as_given({"flushDiskType": "SYNC_FLUSH"}, said) == []


def test_a_group_of_the_controller_is_one_that_elects() -> None:
    assert layout().group.kind is GroupKind.FENCED
    assert rocketmq_watch.POLL_SECONDS < rocketmq_watch.SILENT_SECONDS
