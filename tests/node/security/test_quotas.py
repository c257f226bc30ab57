"""Bounds of users through whole nodes: what is refused, how, when, and what is not."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
import trio

from node.remoting.user_share import DELAY_SECONDS_MAX
from node.security.audit import AUDIT_LOGGER
from node.security.quotas import NOT_COUNTED, REFUSED_MAX
from node.security.request import REQUESTS
from store.machine.network import ConnectionLost
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.access_control import UserInfo
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import (
    ONEWAY_FLAG,
    RemotingCommand,
    encode_frame,
    text_fields,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.node.security.users_world import (
    ALICE,
    AUTHENTICATED,
    BOB,
    OPERATOR,
    ROOT,
    Keys,
    as_user,
    make_user,
    order,
    sample,
)
from tests.node.world import (
    MASTER,
    NAMES,
    SLAVE_1,
    Caller,
    World,
    bodies,
    cluster_config,
    fenced_cluster,
    open_world,
)

BUSY, RETRY = ResponseCode.SYSTEM_BUSY, ResponseCode.PULL_RETRY_IMMEDIATELY


@asynccontextmanager
async def bounded_world(
    directory: Path,
    *,
    clients: ClientAccess = AUTHENTICATED,
    role: str = "ASYNC_MASTER",
    **bounds: int,
) -> AsyncIterator[World]:
    """One node with the users alice and bob; `bounds` are those of the cluster file."""
    config = cluster_config(directory, role=role, clients=clients)
    security = msgspec.structs.replace(
        config.security, **{f"user_{name}": most for name, most in bounds.items()}
    )
    async with open_world(msgspec.structs.replace(config, security=security)) as world:
        await world.start("a0")
        async with world.client(MASTER) as client:
            assert (await as_user(client, OPERATOR).send(b"x", wait=False)).code == 0
            await make_user(client, ALICE)
            await make_user(client, BOB)
            await make_user(client, ROOT, kind="Super")
        yield world


async def bound(client: Caller, name: str, **quota: int) -> None:
    """Give a user bounds of its own."""
    body = msgspec.json.encode({"username": name, "quota": quota})
    operator = as_user(client, OPERATOR)
    answer = await operator.call(RequestCode.AUTH_UPDATE_USER, {"username": name}, body)
    assert (answer.code, answer.remark) == (0, None)


async def shown(client: Caller, name: str) -> UserInfo:
    answer = await as_user(client, OPERATOR).call(RequestCode.AUTH_GET_USER, {"username": name})
    return msgspec.json.decode(answer.body, type=UserInfo)


async def codes_of(user: Any, count: int) -> list[int]:  # noqa: ANN401 - a Signed
    return [(await user.send(b"x", wait=False)).code for _ in range(count)]


async def until(code: int, ask: Callable[[], Awaitable[RemotingCommand]]) -> int:
    """Ask until the answer has this code; return how many were another."""
    for count in range(1_000):
        if (await ask()).code == code:
            return count
    raise AssertionError(code)


def send_frame(
    keys: Keys,
    opaque: int,
    body: bytes = b"x",
    *,
    flag: int = 0,
    wait: bool = False,
    code: int = RequestCode.SEND_MESSAGE_V2,
) -> bytes:
    properties = f"UNIQ_KEY\x017F00000100002A9F\x02WAIT\x01{str(wait).lower()}\x02"
    header = SendMessageRequestHeaderV2("PG", "T", "TBW102", 4, 0, 0, 1, 0, properties)
    fields = text_fields(RemotingCommand(code, ext=header))
    ext = with_acl_signature(*keys, fields, body)
    return encode_frame(RemotingCommand(code, opaque, flag, ext=ext, body=body))


def commit_frame(keys: Keys, opaque: int, offset: int) -> bytes:
    header = UpdateConsumerOffsetRequestHeader("g", "T", 0, offset)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    ext = with_acl_signature(*keys, text_fields(RemotingCommand(code, ext=header)), b"")
    return encode_frame(RemotingCommand(code, opaque, ONEWAY_FLAG, ext=ext))


class Raw:
    """Frames over one connection, and when which was answered with what."""

    def __init__(self, world: World) -> None:
        self._machine = world._client
        self.answers: dict[int, tuple[int, float]] = {}

    async def __aenter__(self) -> Self:
        self._stream = await self._machine.connect(MASTER, 10911, source=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def send(self, *frames: bytes) -> None:
        await self._stream.send_all(b"".join(frames))

    async def receive(self, count: int) -> None:
        """Wait until so many are answered in all, or the node hangs up."""
        frames = FrameBuffer()
        while len(self.answers) < count:
            received = await self._stream.receive_some(65_536)
            if not received:
                return
            frames.receive_data(received)
            while (answer := frames.next_command()) is not None:
                self.answers[answer.opaque] = answer.code, trio.current_time()

    def count(self, code: int) -> int:
        return sum(answer == code for answer, _ in self.answers.values())


async def test_a_send_over_the_bound_is_busy_and_the_answer_comes_when_there_is_room(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, requests_per_second=10) as world,
        world.client(MASTER) as client,
    ):
        alice = as_user(client, ALICE)
        assert await codes_of(alice, 10) == [0] * 10
        await until(BUSY, partial(alice.send, b"x", wait=False))
        began = trio.current_time()
        await until(BUSY, partial(alice.send, b"x", wait=False))
        assert 0.1 < trio.current_time() - began < 0.3
        # It has waited for its turn: the next one is taken.
        assert await codes_of(alice, 1) == [0]
        assert (await shown(client, "alice")).refused == {"requests a second": 2}


async def test_one_who_asks_again_gets_all_through_at_the_rate(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, requests_per_second=20) as world,
        world.client(MASTER) as client,
    ):
        alice, began, tries = as_user(client, ALICE), trio.current_time(), 0
        for number in range(100):
            while True:
                tries += 1
                if (await alice.send(b"%d" % number, wait=False)).code == 0:
                    break
        took = trio.current_time() - began
        assert 3.9 < took < 4.5
        # No more than one try for nothing each time.
        assert tries <= 200


@pytest.mark.parametrize("kind", ["open", "super", "operator", "unbounded", "own"])
async def test_who_is_not_bounded(tmp_path: Path, autojump_clock: object, kind: str) -> None:
    clients = ClientAccess.OPEN if kind == "open" else AUTHENTICATED
    bounds: dict[str, Any] = {} if kind == "open" else {"requests_per_second": 1}
    async with (
        bounded_world(tmp_path, clients=clients, **bounds) as world,
        world.client(MASTER) as client,
    ):
        keys = {"super": ROOT, "operator": OPERATOR}.get(kind, ALICE)
        if kind in ("open", "unbounded"):
            await bound(client, "alice", requestsPerSecond=int(kind == "open"))
        elif kind == "own":
            await bound(client, "alice", requestsPerSecond=1_000)
        elif kind == "super":
            await bound(client, "root", requestsPerSecond=1)
        assert await codes_of(as_user(client, keys), 50) == [0] * 50


async def test_bounds_of_its_own_count_at_once_on_open_connections_and_are_shown(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path) as world,
        world.client(MASTER) as client,
        world.client(MASTER) as other,
    ):
        alice = as_user(client, ALICE)
        assert await codes_of(alice, 50) == [0] * 50
        await bound(other, "alice", requestsPerSecond=5, connectionsMax=7)
        assert 5 <= await until(BUSY, partial(alice.send, b"x", wait=False)) <= 6
        info = await shown(other, "alice")
        assert info.quota is not None
        assert info.quota.requests_per_second == 5
        assert info.quota.connections_max == 7
        # What is not named stays; none of its own are those of the file again.
        body = msgspec.json.encode({"userStatus": "enable"})
        await as_user(other, OPERATOR).call(
            RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, body
        )
        assert (await shown(other, "alice")).quota == info.quota
        await bound(other, "alice")
        assert (await shown(other, "alice")).quota is None
        assert await codes_of(alice, 50) == [0] * 50


@pytest.mark.parametrize(
    "quota", [{"requestsPerSecond": -1}, {"requestsPerSecond": "x"}, {"bytesPerSecond": 1 << 41}, 7]
)
async def test_bounds_that_cannot_be_are_refused_and_nothing_changes(
    tmp_path: Path, autojump_clock: object, quota: object
) -> None:
    async with bounded_world(tmp_path) as world, world.client(MASTER) as client:
        body = msgspec.json.encode({"userStatus": "disable", "quota": quota})
        answer = await as_user(client, OPERATOR).call(
            RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, body
        )
        assert answer.code
        info = await shown(client, "alice")
        assert (info.quota, info.user_status) == (None, "enable")


async def test_a_pull_over_the_bound_is_to_be_tried_again_from_where_it_was(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, requests_per_second=2) as world,
        world.client(MASTER) as client,
    ):
        alice = as_user(client, ALICE)
        assert bodies(await alice.pull()) == [b"x"]
        assert bodies(await alice.pull()) == [b"x"]
        assert await until(RETRY, alice.pull) <= 1
        began = trio.current_time()
        while (answer := await alice.pull(0)).code == 0:
            pass
        assert answer.code == RETRY
        assert answer.decode_header(PullMessageResponseHeader).next_begin_offset == 0
        assert trio.current_time() - began > 0.3
        assert bodies(await alice.pull()) == [b"x"]


async def test_bytes_of_messages_are_counted_both_ways(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, bytes_per_second=10_000) as world,
        world.client(MASTER) as client,
    ):
        alice, bob = as_user(client, ALICE), as_user(client, BOB)
        assert (await alice.send(bytes(25_000), wait=False)).code == 0
        began = trio.current_time()
        while (await alice.send(b"x", wait=False)).code == BUSY:
            pass
        assert 1.4 < trio.current_time() - began < 1.8
        # What bob reads is counted for bob, held pulls too.
        assert (await bob.pull(1)).code == 0
        began = trio.current_time()
        while (await bob.pull(2)).code == RETRY:
            pass
        assert 1.4 < trio.current_time() - began < 1.8
        await trio.sleep(1)
        async with world.client(MASTER) as operator, trio.open_nursery() as nursery:
            nursery.start_soon(_send_later, operator, bytes(25_000))
            assert len(bodies(await bob.pull(3, suspend_ms=5_000))[0]) == 25_000
        assert (await bob.pull(3)).code == RETRY
        assert (await shown(client, "bob")).refused is not None


async def test_records_that_are_looked_at_or_sent_back_count(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, bytes_per_second=10_000) as world,
        world.client(MASTER) as client,
    ):
        sent = await as_user(client, OPERATOR).send(bytes(25_000), wait=False)
        at = str(int(sent.ext_fields()["msgId"][-16:], 16))
        back = {"group": "g", "offset": at, "delayLevel": "0"}
        bob = as_user(client, BOB)
        for code, fields in (
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": at}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, back),
        ):
            assert (await bob.call(code, fields)).code == 0
            assert (await bob.call(code, fields)).code == BUSY
            await trio.sleep(3)


async def _send_later(client: Caller, body: bytes) -> None:
    await trio.sleep(1)
    await as_user(client, OPERATOR).send(body, wait=False)


async def test_what_keeps_a_client_what_it_is_is_taken_always(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, requests_per_second=1) as world,
        world.client(MASTER) as client,
    ):
        alice = as_user(client, ALICE)
        await codes_of(alice, 2)
        began = trio.current_time()
        for code in sorted(NOT_COUNTED):
            assert code in REQUESTS
            answer = await alice.call(code, *sample(code))
            assert answer.code != BUSY, RequestCode(code).name
        assert trio.current_time() - began < 0.1


async def test_offsets_committed_in_the_middle_of_a_flood_are_kept(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with bounded_world(tmp_path, requests_per_second=5) as world:
        async with Raw(world) as raw:
            frames = []
            for number in range(60):
                frames += [send_frame(ALICE, number), commit_frame(ALICE, 1_000 + number, number)]
            await raw.send(*frames)
            await raw.receive(60)
            assert raw.count(BUSY) == 55
            assert all(at for _, at in raw.answers.values())
        async with world.client(MASTER) as client:
            query = QueryConsumerOffsetRequestHeader("g", "T", 0)
            answer = await as_user(client, ALICE).call(RequestCode.QUERY_CONSUMER_OFFSET, query)
            assert dict(answer.ext_fields())["offset"] == "59"


@pytest.mark.slow
async def test_a_flood_is_not_read_and_other_users_are_not_delayed(
    tmp_path: Path, autojump_clock: object
) -> None:
    flood = 3 * REFUSED_MAX
    async with bounded_world(tmp_path, requests_per_second=10) as world:
        async with (
            Raw(world) as raw,
            world.client(MASTER) as client,
            trio.open_nursery() as nursery,
        ):
            bob, began = as_user(client, BOB), trio.current_time()
            nursery.start_soon(raw.receive, flood)
            for first in range(0, flood, 64):
                await raw.send(*(send_frame(ALICE, first + n) for n in range(64)))
            times = []
            for _ in range(30):
                asked = trio.current_time()
                assert (await bob.send(b"y", wait=False)).code == 0
                times.append(trio.current_time() - asked)
                await trio.sleep(0.11)
            assert max(times) < 0.05
        answered = sorted(at - began for _, at in raw.answers.values())
        # No more than so many wait at a time: the rest is not read before they are answered.
        assert answered[0] < 0.05
        assert answered[-1] > 2 * DELAY_SECONDS_MAX
        for at in answered:
            waiting = sum(at - DELAY_SECONDS_MAX + 0.02 <= other < at for other in answered)
            assert waiting <= REFUSED_MAX + 64


async def test_one_way_sends_over_the_bound_are_dropped_and_counted(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        bounded_world(tmp_path, requests_per_second=3) as world,
        Raw(world) as raw,
        world.client(MASTER) as client,
    ):
        await raw.send(*(send_frame(ALICE, n, flag=ONEWAY_FLAG) for n in range(10)))
        await trio.sleep(2)
        assert (await shown(client, "alice")).refused == {"requests a second": 7}
        assert len(bodies(await as_user(client, OPERATOR).pull())) == 4


async def test_runs_count_by_their_number(tmp_path: Path, autojump_clock: object) -> None:
    async with bounded_world(tmp_path, requests_per_second=100) as world:
        async with Raw(world) as raw:
            await raw.send(*(send_frame(ALICE, n) for n in range(40)))
            await raw.receive(40)
            assert raw.count(0) == 40
            await raw.send(*(send_frame(ALICE, 40 + n) for n in range(100)))
            await raw.receive(140)
            assert raw.count(0) == pytest.approx(100, abs=2)
            assert raw.count(BUSY) == 140 - raw.count(0)
        async with world.client(MASTER) as client:
            # Each that was answered with success is there, and no other.
            pulled = (
                await as_user(client, OPERATOR).call(
                    RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}
                )
            ).ext_fields()
            assert int(pulled["offset"]) == 1 + raw.count(0)


async def test_bytes_in_flight_are_those_that_wait_for_a_replica(
    tmp_path: Path, autojump_clock: object
) -> None:
    bounds: dict[str, Any] = {"bytes_in_flight_max": 2_500}
    async with bounded_world(tmp_path, role="SYNC_MASTER", **bounds) as world:
        await world.start("a1")
        await trio.sleep(6)
        async with Raw(world) as raw, Raw(world) as other:
            world.network.stall(SLAVE_1, MASTER)
            await raw.send(*(send_frame(ALICE, n, bytes(1_000), wait=True) for n in range(2)))
            await trio.sleep(0.5)
            await other.send(send_frame(ALICE, 2, bytes(1_000), wait=True))
            await other.send(send_frame(ALICE, 3, bytes(400), wait=True))
            await other.send(send_frame(BOB, 4, bytes(2_000), wait=True))
            await other.receive(1)
            assert list(other.answers) == [2]
            assert other.count(BUSY) == 1
            world.network.heal_all()
            await raw.receive(2)
            await other.receive(3)
            assert (raw.count(0), other.count(0)) == (2, 2)
            # One that is larger than the bound is taken while nothing else waits.
            await raw.send(send_frame(ALICE, 10, bytes(9_000), wait=True))
            await raw.receive(3)
            assert raw.answers[10][0] == 0


async def test_an_answer_to_something_else_does_not_end_what_is_in_flight(
    tmp_path: Path, autojump_clock: object
) -> None:
    bounds: dict[str, Any] = {"bytes_in_flight_max": 2_500}
    reply = RequestCode.SEND_REPLY_MESSAGE_V2  # it names no requester: answered at once
    async with bounded_world(tmp_path, role="SYNC_MASTER", **bounds) as world:
        await world.start("a1")
        await trio.sleep(6)
        async with Raw(world) as raw:
            world.network.stall(SLAVE_1, MASTER)
            for n in (0, 2):
                put = send_frame(ALICE, n, bytes(2_000), wait=True)
                await raw.send(put, send_frame(ALICE, n + 1, b"r", code=reply))
                await trio.sleep(0.1)
            await raw.receive(3)
            assert (raw.count(BUSY), raw.answers[2][0]) == (1, BUSY)
            world.network.heal_all()
            await raw.receive(4)
            assert raw.answers[0][0] == 0


async def test_who_hangs_up_has_no_more_in_flight_for_it(
    tmp_path: Path, autojump_clock: object
) -> None:
    bounds: dict[str, Any] = {"bytes_in_flight_max": 2_500}
    unread = encode_frame(
        RemotingCommand(RequestCode.NODE_CHALLENGE, 1)
    )  # makes a reset of the end
    async with bounded_world(tmp_path, role="SYNC_MASTER", **bounds) as world:
        await world.start("a1")
        await trio.sleep(6)
        world.network.stall(SLAVE_1, MASTER)
        for n in range(3):
            async with Raw(world) as raw:
                await raw.send(send_frame(ALICE, n, bytes(2_000), wait=True), unread)
                await trio.sleep(0.1)
        world.network.heal_all()
        async with world.client(MASTER) as client:
            assert (await shown(client, "alice")).refused == {"bytes in flight": 2}


async def test_more_connections_than_a_user_may_have_are_ended_with_an_answer(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with bounded_world(tmp_path, connections_max=2) as world:
        async with world.client(MASTER) as first, world.client(MASTER) as second:
            for each in (first, second, first):
                assert (await as_user(each, ALICE).send(b"x", wait=False)).code == 0
            async with Raw(world) as third, Raw(world) as fourth:
                await third.send(send_frame(ALICE, 1), send_frame(ALICE, 2))
                await third.receive(3)
                assert {code for code, _ in third.answers.values()} == {BUSY}
                # bob has connections of his own, and the name server has none of them.
                await fourth.send(send_frame(BOB, 1))
                await fourth.receive(1)
                assert fourth.answers[1][0] == 0
            assert (await shown(first, "alice")).refused == {"connections": 2}
        # Those that have ended count no more.
        await trio.sleep(0.1)
        async with Raw(world) as raw:
            await raw.send(send_frame(ALICE, 1))
            await raw.receive(1)
            assert raw.answers[1][0] == 0


async def test_the_name_server_gives_places_back_and_answers(
    tmp_path: Path, autojump_clock: object
) -> None:
    bounds: dict[str, Any] = {"connections_max": 2, "requests_per_second": 10}
    async with bounded_world(tmp_path, **bounds) as world:
        for _ in range(5):
            async with world.client(MASTER, 9876) as names:
                ask = partial(as_user(names, ALICE).call, RequestCode.GET_BROKER_CLUSTER_INFO)
                with trio.fail_after(1):
                    assert (await ask()).code == 0
            await trio.sleep(0.1)
        async with world.client(MASTER, 9876) as names:
            ask = partial(as_user(names, ALICE).call, RequestCode.GET_BROKER_CLUSTER_INFO)
            began = trio.current_time()
            assert await until(BUSY, ask) < 20
            assert trio.current_time() - began < 2 * DELAY_SECONDS_MAX


async def test_a_connection_that_is_still_for_long_gives_way_to_a_new_one(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with bounded_world(tmp_path, connections_max=1) as world, Raw(world) as first:
        await first.send(send_frame(ALICE, 1))
        await first.receive(1)
        await trio.sleep(75)
        async with Raw(world) as second:
            await second.send(send_frame(ALICE, 1))
            await second.receive(1)
            assert second.answers[1][0] == 0
            with pytest.raises(ConnectionLost):
                await first.send(send_frame(ALICE, 2))
                await first.receive(2)
                raise ConnectionLost(0)  # hung up in order


async def test_log_and_audit_trail_have_one_line_for_a_flood(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO):
            async with (
                bounded_world(tmp_path, requests_per_second=1) as world,
                world.client(MASTER) as client,
            ):
                await codes_of(as_user(client, ALICE), 40)
    finally:
        audit.removeHandler(caplog.handler)
    lines = [
        record for record in caplog.records if record.name in (AUDIT_LOGGER, "node.security.quotas")
    ]
    said = [record.getMessage() for record in lines if "alice is over its 1" in record.getMessage()]
    assert len(said) == 2
    line = msgspec.json.decode(next(each for each in said if each.startswith("{")))
    assert (line["who"], line["result"]) == ("user alice", "SYSTEM_BUSY")


async def test_who_stops_answers_what_waits(tmp_path: Path, autojump_clock: object) -> None:
    async with bounded_world(tmp_path, requests_per_second=1) as world, Raw(world) as raw:
        await raw.send(*(send_frame(ALICE, n) for n in range(9)))
        await trio.sleep(0.01)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.stop, "a0")
            await raw.receive(9)
            assert len(raw.answers) == 9
            assert trio.current_time() - began < 0.1


async def test_bounds_and_users_outlive_a_restart(tmp_path: Path, autojump_clock: object) -> None:
    async with bounded_world(tmp_path) as world:
        async with world.client(MASTER) as client:
            await bound(client, "alice", requestsPerSecond=2)
        await world.kill("a0")
        await world.start("a0")
        async with world.client(MASTER) as client:
            assert await until(BUSY, partial(as_user(client, ALICE).send, b"x", wait=False)) <= 3
            assert await codes_of(as_user(client, BOB), 30) == [0] * 30
            # With the user its bounds are gone: the next of that name has none.
            await order(client, RequestCode.AUTH_DELETE_USER, username="alice")
            await make_user(client, ALICE)
            assert await codes_of(as_user(client, ALICE), 30) == [0] * 30


async def test_a_slave_has_the_bounds_of_its_master(tmp_path: Path, autojump_clock: object) -> None:
    async with bounded_world(tmp_path, role="SYNC_MASTER") as world:
        await world.start("a1")
        async with world.client(MASTER) as client, world.client(SLAVE_1) as slave:
            await bound(client, "alice", requestsPerSecond=2)
            await trio.sleep(5)
            assert await until(RETRY, as_user(slave, ALICE).pull) <= 10
            await bound(client, "alice")
            await trio.sleep(5)
            pulled = [(await as_user(slave, ALICE).pull()).code for _ in range(20)]
            assert RETRY not in pulled


async def taking_master(world: World, names: Sequence[str]) -> str:
    """Return the first node that takes a message."""
    while True:
        for name in names:
            async with world.client(world.address(name)) as client:
                if (await as_user(client, OPERATOR).send(b"x")).code == 0:
                    return name
        await trio.sleep(0.1)


async def test_bounds_outlive_a_change_of_masters(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(fenced_cluster(tmp_path, clients=AUTHENTICATED)) as world:
        await world.start(*NAMES)
        master = await taking_master(world, NAMES)
        async with world.client(world.address(master)) as client:
            await make_user(client, ALICE)
            await bound(client, "alice", requestsPerSecond=2)
            assert await until(BUSY, partial(as_user(client, ALICE).send, b"x")) <= 3
        await world.kill(master)
        others = [name for name in NAMES if name != master]
        async with world.client(world.address(await taking_master(world, others))) as client:
            info = await shown(client, "alice")
            assert info.quota is not None
            assert info.quota.requests_per_second == 2
            assert await until(BUSY, partial(as_user(client, ALICE).send, b"x")) <= 3
