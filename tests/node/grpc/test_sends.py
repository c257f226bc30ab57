from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from node.grpc.protocol import messages as pb
from node.grpc.transaction_ids import read_transaction_id
from node.simulated.virtual_clock import WallClock
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.message import decode_messages
from tests.node.grpc.grpc_world import make_topic, message, send, with_grpc
from tests.node.grpc.h2_client import open_client
from tests.node.world import (
    MASTER,
    SLAVE_1,
    bodies,
    cluster_config,
    fenced_cluster,
    open_world,
)

pytestmark = pytest.mark.slow


def single(directory: Path, **broker: object) -> ClusterConfig:
    return with_grpc(cluster_config(directory, role="ASYNC_MASTER"), **broker)


async def test_a_message_of_each_type_is_stored_with_all_that_it_says(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(single(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            for topic, kind in (("T", None), ("F", "FIFO"), ("M", "MIXED")):
                await make_topic(caller, topic, kind, queues=1)
            sent = message("T", tag="a", keys=["k1", "k2"])
            sent.user_properties["p"] = "v"
            answer = await send(client, sent)
            assert (answer.status.code, answer.status.message) == (pb.OK, "OK")
            (entry,) = answer.entries
            assert entry.message_id == entry.transaction_id == sent.system_properties.message_id
            (found,) = decode_messages((await caller.pull()).body)
            assert found.body == b"hello"
            expected = {
                "TAGS": "a",
                "KEYS": "k1 k2",
                "p": "v",
                "UNIQ_KEY": sent.system_properties.message_id,
                "PGROUP": "T",
                "__BORNHOST": "host-of-the-client",
                "BORN_TIMESTAMP": "1700000000123",
            }
            assert expected.items() <= found.properties.items()
            assert found.born_timestamp_ms == 1_700_000_000_123
            fifo = message("F", message_group="g", message_type=pb.FIFO)
            assert (await send(client, fifo)).status.code == pb.OK
            (found,) = decode_messages((await caller.pull(topic="F")).body)
            assert found.properties["__SHARDINGKEY"] == "g"
            assert (await send(client, message("M"))).status.code == pb.OK


async def test_each_message_of_a_call_has_an_answer_of_its_own(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(single(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            await make_topic(caller, "T", queues=1)
            answer = await send(client, *[message(number=number) for number in range(5)])
            assert [entry.offset for entry in answer.entries] == [0, 1, 2, 3, 4]
            assert len({entry.message_id for entry in answer.entries}) == 5


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([], pb.MESSAGE_CORRUPTED),
        ([message("T"), message("F")], pb.MESSAGE_CORRUPTED),
        ([message("no such")], pb.ILLEGAL_TOPIC),
        ([message("SCHEDULE_TOPIC_XXXX")], pb.ILLEGAL_TOPIC),
        ([message("Unknown")], pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("T", b"")], pb.MESSAGE_BODY_EMPTY),
        ([message("T", b"x" * 100_001)], pb.MESSAGE_BODY_TOO_LARGE),
        ([message("T", message_group="g")], pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("F")], pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("T", message_type=pb.TRANSACTION)], pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("T"), message("T", tag="a|b")], pb.ILLEGAL_MESSAGE_TAG),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_code_and_nothing_is_stored(
    sent: list[pb.Message], code: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(single(tmp_path)) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            await make_topic(caller, "T", queues=1)
            await make_topic(caller, "F", "FIFO", queues=1)
            answer = await send(client, *sent)
            assert answer.status.code == code
            assert not answer.entries
            assert (await caller.pull()).code != 0, "something was stored"


async def test_a_delayed_message_has_a_handle_by_which_it_is_recalled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = single(tmp_path, recall_message_enable=True)
    store = msgspec.structs.replace(config.store, timer_wheel_enable=True)
    config = msgspec.structs.replace(config, store=store)
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller, open_client(world._client, MASTER) as client:
            await make_topic(caller, "D", "DELAY", queues=1)
            await make_topic(caller, "T", queues=1)
            now_ms = WallClock().now_ms()
            late = message("D", message_type=pb.DELAY, deliver_ms=now_ms + 60_000)
            answer = await send(client, late)
            assert answer.status.code == pb.OK, answer.status
            handle = answer.entries[0].recall_handle
            assert handle
            recall = pb.RecallMessageRequest(recall_handle=handle)
            recall.topic.name = "D"
            recalled = await client.call("RecallMessage", recall)
            assert recalled.status.code == pb.OK
            assert recalled.message_id == late.system_properties.message_id
            recall.topic.name = "T"
            refused = await client.call("RecallMessage", recall)
            assert refused.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            recall.topic.name, recall.recall_handle = "D", "zz"
            refused = await client.call("RecallMessage", recall)
            assert refused.status.code == pb.INTERNAL_SERVER_ERROR
            far = message("D", message_type=pb.DELAY, deliver_ms=now_ms + 25 * 3_600_000)
            assert (await send(client, far)).status.code == pb.ILLEGAL_DELIVERY_TIME


def ending(
    topic: str, transaction_id: str, resolution: pb.TransactionResolution
) -> pb.EndTransactionRequest:
    request = pb.EndTransactionRequest(
        message_id="m", transaction_id=transaction_id, resolution=resolution
    )
    request.topic.name = topic
    return request


async def test_a_transaction_is_ended_by_its_id_alone_also_at_another_node_after_a_restart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_grpc(fenced_cluster(tmp_path))) as world:
        await world.start("a1", "a2", "a3")
        master = world.address(await world.master())
        others = [host for host in (MASTER, SLAVE_1) if host != master]
        async with world.client(master) as caller:
            await make_topic(caller, "X", "TRANSACTION", queues=1)
            await make_topic(caller, "Y", "TRANSACTION", queues=1)
        ids = []
        await trio.sleep(1)
        async with open_client(world._client, master) as client:
            for number in range(3):
                half = message("X", b"%d" % number, number, message_type=pb.TRANSACTION)
                answer = await send(client, half)
                assert answer.status.code == pb.OK, answer.status
                ids.append(answer.entries[0].transaction_id)
        assert read_transaction_id(ids[0]).broker_name == "broker-a"
        await world.kill(next(name for name in world.stops if world.address(name) == master))
        new = world.address(
            await world.master(*[n for n in world.stops if world.address(n) != master])
        )
        async with open_client(world._client, others[0]) as client, world.client(new) as caller:
            for topic, which, resolution, code in (
                ("X", ids[1], pb.COMMIT, pb.OK),
                ("X", ids[1], pb.COMMIT, pb.OK),
                ("X", ids[2], pb.ROLLBACK, pb.OK),
                ("X", ids[1], pb.ROLLBACK, pb.INTERNAL_SERVER_ERROR),
                ("Y", ids[0], pb.COMMIT, pb.FORBIDDEN),
                ("X", "half1 broker-z 0 0 m", pb.COMMIT, pb.INTERNAL_SERVER_ERROR),
                ("X", "nothing", pb.COMMIT, pb.INTERNAL_SERVER_ERROR),
                ("X", " ", pb.COMMIT, pb.INVALID_TRANSACTION_ID),
            ):
                ended = await client.call("EndTransaction", ending(topic, which, resolution))
                assert ended.status.code == code, (topic, which, ended.status)
            assert bodies(await caller.pull(topic="X")) == [b"1"]
