from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from node.grpc.protocol import messages as pb
from node.grpc.receipts import Delivery
from node.grpc.renewals import (
    GIVEN_BACK_MS,
    KEPT_MAX,
    LONGEST_SECONDS,
    RENEW_SECONDS,
    RENEWED_MS,
    SILENT_SECONDS,
    Renewals,
)
from tandem.wire.receipt_handle import ReceiptHandle, TopicMark
from tests.node.grpc.grpc_world import (
    acknowledge,
    all_of,
    begun,
    make_topic,
    message,
    receive,
    receiving,
    send,
    with_grpc,
)
from tests.node.grpc.h2_client import open_client
from tests.node.world import MASTER, cluster_config, open_world

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = [pytest.mark.slow, pytest.mark.sim]


def delivery(number: int = 1, group: str = "g") -> Delivery:
    return Delivery(group, "T", ReceiptHandle(0, 5, 60_000, 1, TopicMark.NORMAL, "a", 0, number))


def test_what_a_client_has_is_renewed_as_long_as_it_calls() -> None:
    renewals, now = Renewals(), 0.0
    changed: list[int] = []
    renewals.keep("me", delivery(), changed.append, now)
    while now < 10 * RENEW_SECONDS:
        now += 1
        renewals.heard_of("me", now)
        renewals.work(now)
    assert changed == [RENEWED_MS] * 10
    renewals.done("g", delivery().text)
    renewals.work(now + RENEW_SECONDS)
    assert (len(changed), renewals.count) == (10, 0)


def test_a_client_that_is_silent_or_leaves_gives_back_its_own_alone() -> None:
    renewals = Renewals()
    mine: list[int] = []
    others: list[int] = []
    renewals.keep("me", delivery(1), mine.append, 0.0)
    renewals.keep("other", delivery(2), others.append, 0.0)
    renewals.heard_of("other", SILENT_SECONDS)
    renewals.work(SILENT_SECONDS + 0.1)
    assert (mine, renewals.count) == ([GIVEN_BACK_MS], 1)
    others.clear()
    renewals.gone("other")
    assert (others, renewals.count) == ([GIVEN_BACK_MS], 0)
    renewals.gone("nobody")


def test_nothing_is_renewed_for_ever_nor_beyond_the_bound() -> None:
    renewals = Renewals()
    changed: list[int] = []
    renewals.keep("me", delivery(), changed.append, 0.0)
    renewals.heard_of("me", LONGEST_SECONDS + 1)
    renewals.work(LONGEST_SECONDS + 1)
    assert (changed, renewals.count) == ([], 0)
    for number in range(KEPT_MAX + 5):
        renewals.keep("me", delivery(number), changed.append, 0.0)
    assert renewals.count == KEPT_MAX


async def test_a_message_is_kept_for_a_push_consumer_and_given_back_when_it_is_gone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))) as world:
        await world.start("a0")
        network = world._client
        async with (
            world.client(MASTER) as caller,
            open_client(network, MASTER, {"x_mq_client_id": "other"}) as other,
        ):
            await make_topic(caller, "T", queues=1)
            await begun(other)
            async with open_client(network, MASTER, {"x_mq_client_id": "pusher"}) as pusher:
                await send(other, message("T", b"1"), message("T", b"2", 2))
                first = await all_of(pusher, 2, receiving(auto_renew=True))
                handles = [each.system_properties.receipt_handle for each in first]
                beat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER)
                beat.group.name = "g"
                for _ in range(18):
                    await trio.sleep(10)
                    assert (await pusher.call("Heartbeat", beat)).status.code == pb.OK
                async with open_client(network, MASTER) as third:
                    batch = await receive(third, receiving())
                    assert batch.messages == [], "it is still at work"
                answer = await acknowledge(pusher, handles[0])
                assert answer.status.code == pb.OK, "the handle is good as it was"
            began = trio.current_time()
            async with open_client(network, MASTER) as third:
                (back,) = await all_of(third, 1, receiving(poll_seconds=20))
            assert back.body == first[1].body
            assert trio.current_time() - began < 40
