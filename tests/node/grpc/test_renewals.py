from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

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
from node.grpc.session import Session
from tandem.cluster_file.choices import ClientAccess
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
from tests.node.grpc.signed import signature
from tests.node.security.users_world import (
    ALICE,
    BOB,
    OPERATOR,
    STRANGER,
    as_user,
    entry,
    make_user,
)
from tests.node.world import MASTER, cluster_config, open_world

pytestmark = [pytest.mark.slow, pytest.mark.sim]


def delivery(number: int = 1, group: str = "g") -> Delivery:
    return Delivery(group, "T", ReceiptHandle(0, 5, 60_000, 1, TopicMark.NORMAL, "a", 0, number))


def test_what_a_client_has_is_renewed_as_long_as_it_calls() -> None:
    renewals, now = Renewals(), 0.0
    changed: list[int] = []
    renewals.keep(("anybody", "me"), delivery(), changed.append, now)
    while now < 10 * RENEW_SECONDS:
        now += 1
        renewals.heard_of(("anybody", "me"), now)
        renewals.work(now)
    assert changed == [RENEWED_MS] * 10
    renewals.done("g", delivery().text)
    renewals.work(now + RENEW_SECONDS)
    assert (len(changed), renewals.count) == (10, 0)


def test_a_client_that_is_silent_or_leaves_gives_back_its_own_alone() -> None:
    renewals = Renewals()
    mine: list[int] = []
    others: list[int] = []
    renewals.keep(("anybody", "me"), delivery(1), mine.append, 0.0)
    renewals.keep(("anybody", "other"), delivery(2), others.append, 0.0)
    renewals.heard_of(("anybody", "other"), SILENT_SECONDS)
    renewals.work(SILENT_SECONDS + 0.1)
    assert (mine, renewals.count) == ([GIVEN_BACK_MS], 1)
    others.clear()
    renewals.gone(("anybody", "other"))
    assert (others, renewals.count) == ([GIVEN_BACK_MS], 0)
    renewals.gone(("anybody", "nobody"))


def test_nothing_is_renewed_for_ever_nor_beyond_the_bound() -> None:
    renewals = Renewals()
    changed: list[int] = []
    renewals.keep(("anybody", "me"), delivery(), changed.append, 0.0)
    renewals.heard_of(("anybody", "me"), LONGEST_SECONDS + 1)
    renewals.work(LONGEST_SECONDS + 1)
    assert (changed, renewals.count) == ([], 0)
    for number in range(KEPT_MAX + 5):
        renewals.keep(("anybody", "me"), delivery(number), changed.append, 0.0)
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


async def test_what_is_renewed_for_a_client_that_came_again_leaves_nothing_at_its_old_connection(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Session] = []

    class NotedSession(Session):
        def __init__(self, *args: Any) -> None:  # noqa: ANN401
            super().__init__(*args)
            sessions.append(self)

    monkeypatch.setattr("node.grpc.entrance.Session", NotedSession)
    beat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER)
    beat.group.name = "g"
    async with open_world(with_grpc(cluster_config(tmp_path, role="ASYNC_MASTER"))) as world:
        await world.start("a0")
        network = world._client
        async with world.client(MASTER) as caller, open_client(network, MASTER) as other:
            await make_topic(caller, "T", queues=1)
            await begun(other)
            await send(other, message("T", b"1"))
            headers = {"x_mq_client_id": "pusher"}
            async with open_client(network, MASTER, headers) as pusher:
                await all_of(pusher, 1, receiving(auto_renew=True))
            async with open_client(network, MASTER, headers) as pusher:
                for _ in range(18):
                    assert (await pusher.call("Heartbeat", beat)).status.code == pb.OK
                    await trio.sleep(10)
                async with open_client(network, MASTER) as third:
                    batch = await receive(third, receiving())
                    assert batch.messages == [], "it is still at work"
    assert [len(each._asked) for each in sessions] == [0, 0, 0, 0]


@pytest.mark.parametrize("keys", [BOB, STRANGER, None])
async def test_nobody_speaks_for_a_client_whose_id_they_know(
    keys: tuple[str, str] | None, tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = with_grpc(
        cluster_config(tmp_path, role="ASYNC_MASTER", clients=ClientAccess.AUTHORIZED)
    )
    async with open_world(config) as world:
        await world.start("a0")
        async with world.client(MASTER) as caller:
            rights = entry("Allow", "Topic:T", "Pub", "Sub"), entry("Allow", "Group:g", "Sub")
            await make_user(caller, ALICE, *rights)
            await make_user(caller, BOB, *rights)
            await make_topic(as_user(caller, OPERATOR), "T", queues=1)
        hers = {"x_mq_client_id": "alice@1"}
        signed = {} if keys is None else signature(keys)
        beat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER)
        beat.group.name = "g"
        good_bye = pb.NotifyClientTerminationRequest()
        async with (
            open_client(world._client, MASTER, signature(ALICE) | hers) as alice,
            open_client(world._client, MASTER, signed | hers) as eve,
        ):
            await begun(alice)
            await send(alice, message())
            await all_of(alice, 1, receiving(auto_renew=True))
            expected = pb.OK if keys == BOB else pb.UNAUTHORIZED
            assert (await eve.call("NotifyClientTermination", good_bye)).status.code == expected
            await trio.sleep(3)
            assert (await receive(alice, receiving())).messages == [], "she has it still"
            for _ in range(5):
                await trio.sleep(10)
                assert (await eve.call("Heartbeat", beat)).status.code == expected
            again = await receive(alice, receiving())
            assert [each.system_properties.delivery_attempt for each in again.messages] == [2]


def test_many_clients_that_are_silent_at_once_are_no_work_for_each_other() -> None:
    renewals = Renewals()
    changed: list[int] = []
    for number in range(KEPT_MAX):
        renewals.keep(("anybody", f"c{number}"), delivery(number), changed.append, 0.0)
    renewals.work(SILENT_SECONDS + 1)  # for ever, if each looked through all
    assert (len(changed), renewals.count) == (KEPT_MAX, 0)
