"""Users at whole nodes: who is let in, to what, and that an end is an end."""

from itertools import product
from pathlib import Path

import msgspec
import pytest
import trio

from node.security.access import Standing, needed
from node.security.guard import WRONG_SIGNATURES_MAX
from node.security.request import ANY_USER, REQUESTS
from node.security.user_caller import Asked, Names
from node.simulated.network import SimulatedStream
from node.simulated.virtual_clock import WallClock
from store.machine.network import ConnectionLost
from tandem.wire.access_control import Kind, Right
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.message import decode_messages
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    ViewMessageRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RMQ_SYS_TRANS_HALF_TOPIC
from tests.node.security.users_world import (
    ALICE,
    AUTHENTICATED,
    AUTHORIZED,
    BOB,
    OPERATOR,
    ROOT,
    STRANGER,
    Keys,
    as_user,
    classic_world,
    entry,
    fenced_world,
    grant,
    make_user,
    operators_master,
    order,
    sample,
)
from tests.node.world import MASTER, NAMES, SLAVE_1, World, bodies, cluster_config, open_world

UPDATE = RequestCode.AUTH_UPDATE_USER
REFUSED = ResponseCode.NO_PERMISSION
SUB_PUB = (Right.SUB, Right.PUB)


@pytest.mark.parametrize(
    ("kind", "name", "rights", "asked"),
    [
        (Kind.TOPIC, "T", SUB_PUB, Asked(Kind.TOPIC, "T", SUB_PUB)),
        (Kind.TOPIC, "%RETRY%g", (Right.PUB,), Asked(Kind.GROUP, "g", (Right.SUB,))),
        (Kind.TOPIC, "%DLQ%g", SUB_PUB, Asked(Kind.GROUP, "g", (Right.SUB,))),
        (Kind.TOPIC, "%DLQ%g", (Right.DELETE,), Asked(Kind.GROUP, "g", (Right.DELETE,))),
        (Kind.TOPIC, "RMQ_SYS_TRACE_TOPIC", (Right.PUB,), None),
        (Kind.TOPIC, "RMQ_SYS_TRACE_TOPIC", (Right.SUB,), Asked(Kind.CLUSTER, "C", (Right.GET,))),
        (Kind.TOPIC, "TBW102", (Right.CREATE,), Asked(Kind.CLUSTER, "C", (Right.UPDATE,))),
        (Kind.TOPIC, "rmq_sys_x", (Right.SUB, Right.GET), Asked(Kind.CLUSTER, "C", (Right.GET,))),
        (Kind.TOPIC, "broker-a", (Right.PUB,), Asked(Kind.CLUSTER, "C", (Right.UPDATE,))),
        (Kind.GROUP, "%RETRY%g", (Right.SUB,), Asked(Kind.GROUP, "%RETRY%g", (Right.SUB,))),
        (Kind.CLUSTER, "", (Right.GET,), Asked(Kind.CLUSTER, "C", (Right.GET,))),
    ],
)
def test_a_name_is_the_name_of_what_it_belongs_to(
    kind: Kind, name: str, rights: tuple[Right, ...], asked: Asked | None
) -> None:
    names = Names("C", frozenset({"C", "broker-a"}))
    assert names.asked(kind, name, rights) == asked


def is_refused(answer: RemotingCommand) -> bool:
    return answer.code == REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("clients", [AUTHENTICATED, AUTHORIZED])
async def test_of_who_signs_nothing_rightly_no_code_is_served(
    tmp_path: Path, autojump_clock: object, clients: object
) -> None:
    """Every code, at the client port and at that of the name server."""
    async with classic_world(tmp_path, clients) as world:  # type: ignore[arg-type]
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "All"))
        for port in (10911, 9876):
            for code in set(REQUESTS) - {RequestCode.NODE_CHALLENGE}:
                ext, body = sample(code)
                async with world.client(MASTER, port) as client:
                    unsigned = await client.call(code, ext, body)
                    wrong = await as_user(client, ("alice", "not her secret")).call(code, ext, body)
                    unknown = await as_user(client, STRANGER).call(code, ext, body)
                    nameless = await client.call(code, {**ext, "AccessKey": "alice"}, body)
                for answer in (unsigned, wrong, unknown, nameless):
                    not_served = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                    assert is_refused(answer) or not_served, (code, answer)


async def test_without_a_right_to_it_no_code_does_anything(
    tmp_path: Path, autojump_clock: object
) -> None:
    """Of the codes of RocketMQ 5.3.3 some forty are open to anyone who can sign."""
    async with classic_world(tmp_path, AUTHORIZED) as world:
        async with world.client(MASTER) as client:
            await make_user(client, ALICE)
        for port in (10911, 9876):
            for code in set(REQUESTS) - {RequestCode.NODE_CHALLENGE}:
                async with world.client(MASTER, port) as client:
                    answer = await as_user(client, ALICE).call(code, *sample(code))
                if REQUESTS[code].touches == (ANY_USER,):
                    # Where the brokers are, which clients that may anything have to know.
                    assert code == RequestCode.GET_BROKER_CLUSTER_INFO
                    continue
                not_served = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert is_refused(answer) or not_served, (RequestCode(code).name, answer)


@pytest.mark.slow
async def test_with_all_rights_every_code_is_served_that_is_not_of_nodes(
    tmp_path: Path, autojump_clock: object
) -> None:
    deletions = {RequestCode.AUTH_DELETE_USER, RequestCode.AUTH_DELETE_ACL}
    of_signatures = {RequestCode.NODE_CHALLENGE, RequestCode.SIGN_IN}
    everything = sorted(set(REQUESTS) - deletions - of_signatures)
    async with classic_world(tmp_path, AUTHORIZED) as world:
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "All"))
            await make_user(client, ROOT, kind="Super")
        for keys, code in product((ALICE, ROOT, OPERATOR), everything):
            async with world.client(MASTER) as client:
                with trio.move_on_after(30):
                    answer = await as_user(client, keys).call(code, *sample(code))
                    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        continue
                    remark = answer.remark or ""
                    by_guard = remark.startswith(("no permission: ", "User:"))
                    least = needed(REQUESTS[code].access)
                    of_nodes = least is Standing.NODE
                    of_nodes |= least is Standing.ADMITTED and keys is not OPERATOR
                    assert by_guard is of_nodes, (keys[0], RequestCode(code).name, answer)


async def test_in_the_mode_that_asks_who_it_is_every_user_may_what_clients_may(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHENTICATED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE)
        alice = as_user(client, ALICE)
        assert (await alice.send(b"y")).code == 0
        assert bodies(await alice.pull()) == [b"x", b"y"]
        for code in (
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.AUTH_LIST_USER,
            RequestCode.GET_ALL_USERS,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        ):
            assert is_refused(await alice.call(code, *sample(code)))
        ext, _ = sample(RequestCode.UPDATE_AND_CREATE_TOPIC)
        ext |= {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        answer = await alice.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext | {"topic": "U"})
        assert answer.code == 0, answer.remark
        of_system = ext | {"topic": "rmq_sys_mine"}
        assert is_refused(await alice.call(RequestCode.UPDATE_AND_CREATE_TOPIC, of_system))


async def test_a_user_does_what_the_rules_say_and_a_refusal_says_what_it_takes(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "Topic:T", "Pub"))
        alice = as_user(client, ALICE)
        assert (await alice.send(b"y")).code == 0
        refused = await alice.pull()
        assert refused.remark == (
            "User:alice has no permission to access Topic:T from 10.0.0.9, no matched policies."
            " It takes Sub; `tandem acl check alice Sub Topic:T` says what decides"
        )
        await grant(client, "alice", entry("Allow", "Topic:*", "Sub"))
        assert "Group:g" in str((await alice.pull()).remark)
        await grant(client, "alice", entry("Allow", "Group:g", "Sub"))
        assert bodies(await alice.pull()) == [b"x", b"y"]
        await grant(client, "alice", entry("Deny", "Topic:T", "Sub"))
        assert "the decision is deny" in str((await alice.pull()).remark)


async def test_to_create_a_topic_by_a_send_takes_the_right_to_create(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "Topic:New*", "Pub"))
        alice = as_user(client, ALICE)
        refused = await alice.send(b"y", topic="New1")
        assert is_refused(refused)
        assert "It takes Create" in str(refused.remark)
        await grant(client, "alice", entry("Allow", "Topic:New*", "Pub", "Create"))
        assert (await alice.send(b"y", topic="New1")).code == 0


async def test_a_record_is_shown_to_who_may_read_its_own_topic(
    tmp_path: Path, autojump_clock: object
) -> None:
    """By its place in the log, sent back to another group, or pushed to a client of one's own."""
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(
            client, ALICE, entry("Allow", "Topic:Mine", "All"), entry("Allow", "Group:g", "All")
        )
        alice = as_user(client, ALICE)
        (message,) = decode_messages((await as_user(client, OPERATOR).pull()).body)
        at = message.physical_offset
        view = ViewMessageRequestHeader(at)
        back = ConsumerSendMsgBackRequestHeader(at, "g", 0, "", "Mine")
        direct = {"consumerGroup": "g", "clientId": "c", "msgId": message.offset_msg_id}
        calls = [
            (RequestCode.VIEW_MESSAGE_BY_ID, view),
            (RequestCode.CONSUMER_SEND_MSG_BACK, back),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, direct),
        ]
        for code, ext in calls:
            answer = await alice.call(code, ext)  # type: ignore[arg-type]
            assert is_refused(answer), code
            assert "Topic:T" in str(answer.remark)
        await grant(client, "alice", entry("Allow", "Topic:T", "Sub"))
        assert (await alice.call(*calls[0])).code == 0  # type: ignore[arg-type]
        assert (await alice.call(*calls[1])).code == 0  # type: ignore[arg-type]


async def test_a_half_is_ended_by_who_may_write_its_topic_whatever_the_request_names(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "Topic:Mine", "Pub"))
        operator, alice = as_user(client, OPERATOR), as_user(client, ALICE)
        properties = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AA\x02"
        header = SendMessageRequestHeaderV2("p", "T", "TBW102", 4, 0, 4, 1, 0, properties)
        half = await operator.call(RequestCode.SEND_MESSAGE_V2, header, b"half")
        assert half.code == 0
        message_id = half.ext_fields()["msgId"]
        offset = int(message_id[16:], 16)
        for named in ("Mine", RMQ_SYS_TRANS_HALF_TOPIC, None):
            end = EndTransactionRequestHeader("p", 0, offset, 8, topic=named)
            answer = await alice.call(RequestCode.END_TRANSACTION, end)
            assert is_refused(answer)
            assert "Topic:T" in str(answer.remark)
        await grant(client, "alice", entry("Allow", "Topic:T", "Pub"))
        for named in ("T", RMQ_SYS_TRANS_HALF_TOPIC, None):
            # The client 5.x that was asked names the topic of all halves.
            end = EndTransactionRequestHeader("p", 0, offset, 8, topic=named)
            assert (await alice.call(RequestCode.END_TRANSACTION, end)).code == 0, named


@pytest.mark.parametrize("end", ["disabled", "deleted", "denied", "another secret"])
async def test_a_pull_that_waits_ends_when_its_user_may_no_more(
    tmp_path: Path, autojump_clock: object, end: str
) -> None:
    async with (
        classic_world(tmp_path, AUTHORIZED) as world,
        world.client(MASTER) as client,
        world.client(MASTER) as other,
    ):
        await make_user(client, ALICE, entry("Allow", "*", "Sub"))
        answers: list[RemotingCommand] = []
        ended_at = 0.0

        async def wait() -> None:
            nonlocal ended_at
            answers.append(await as_user(other, ALICE).pull(1, suspend_ms=15_000))
            ended_at = trio.current_time()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(2)
            assert not answers
            if end == "disabled":
                await order(
                    client, RequestCode.AUTH_UPDATE_USER, username="alice", userStatus="disable"
                )
            elif end == "deleted":
                await order(client, RequestCode.AUTH_DELETE_USER, username="alice")
            elif end == "another secret":
                await order(
                    client,
                    RequestCode.AUTH_UPDATE_USER,
                    username="alice",
                    password="a new secret",
                )
            else:
                await grant(client, "alice", entry("Deny", "Topic:T", "Sub"))
            changed_at = trio.current_time()
        (answer,) = answers
        assert is_refused(answer)
        assert ended_at - changed_at < 0.1


async def test_a_pull_goes_on_to_wait_when_something_else_has_changed(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        classic_world(tmp_path, AUTHORIZED) as world,
        world.client(MASTER) as client,
        world.client(MASTER) as other,
    ):
        await make_user(client, ALICE, entry("Allow", "*", "Sub"))
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                assert bodies(await as_user(other, ALICE).pull(1, suspend_ms=15_000)) == [b"y"]

            nursery.start_soon(wait)
            await trio.sleep(2)
            await grant(client, "alice", entry("Allow", "Topic:U", "Pub"))
            await trio.sleep(2)
            assert (await as_user(client, OPERATOR).send(b"y")).code == 0


async def test_connections_of_who_is_known_no_more_are_ended(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        classic_world(tmp_path, AUTHORIZED) as world,
        world.client(MASTER) as client,
        world.client(MASTER) as other,
    ):
        await make_user(client, ALICE, entry("Allow", "*", "All"))
        await make_user(client, BOB, entry("Allow", "*", "All"))
        async with world.client(MASTER) as third:
            assert (await as_user(other, ALICE).send(b"y")).code == 0
            assert (await as_user(third, BOB).send(b"y")).code == 0
            await order(
                client, RequestCode.AUTH_UPDATE_USER, username="alice", userStatus="disable"
            )
            with pytest.raises(ConnectionLost):
                await as_user(other, ALICE).send(b"z")
            assert (await as_user(third, BOB).send(b"z")).code == 0


async def test_who_guesses_loses_the_connection_and_the_user_is_not_locked_out(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with (
        classic_world(tmp_path, AUTHORIZED) as world,
        world.client(MASTER) as client,
        world.client(MASTER) as guesser,
    ):
        await make_user(client, ALICE, entry("Allow", "*", "All"))
        for _ in range(WRONG_SIGNATURES_MAX + 1):
            answer = await as_user(guesser, ("alice", "a guess")).send(b"y")
            assert answer.remark == "check signature failed."
        with pytest.raises(ConnectionLost):
            await as_user(guesser, ("alice", "a guess")).send(b"y")
        assert (await as_user(client, ALICE).send(b"y")).code == 0


async def test_an_answer_does_not_say_which_users_there_are(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE)
        await order(client, UPDATE, username="alice", userStatus="disable")
        texts = {
            (await as_user(client, keys).send(b"x")).remark
            for keys in (ALICE, STRANGER, ("alice", "another one"))
        }
        assert texts == {"check signature failed."}


async def test_nobody_chooses_where_a_request_comes_from(
    tmp_path: Path, autojump_clock: object
) -> None:
    """RocketMQ 5.3.3 believes a PROXY header from everybody."""
    async with classic_world(tmp_path, AUTHORIZED) as world:
        async with world.client(MASTER) as client:
            allowed = entry("Allow", "Topic:T", "Pub") | {"sourceIps": ["10.9.8.7"]}
            await make_user(client, ALICE, allowed)
            assert is_refused(await as_user(client, ALICE).send(b"y"))
        stream = await world.network.machine("10.0.0.50").connect(MASTER, 10911, source="10.0.0.50")
        await stream.send_all(b"PROXY TCP4 10.9.8.7 10.0.0.1 1234 10911\r\n")
        assert await stream.receive_some(100) == b""


@pytest.mark.slow
async def test_users_are_those_that_are_confirmed_on_every_node_and_after_a_switch(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with fenced_world(tmp_path, AUTHORIZED) as world:
        await world.start(*NAMES)
        master = await operators_master(world)
        async with world.client(world.address(master)) as client:
            await make_user(
                client, ALICE, entry("Allow", "Topic:T", "All"), entry("Allow", "Group:g", "Sub")
            )
            await as_user(client, OPERATOR).send(b"x")
            await make_user(client, BOB)
            await order(client, RequestCode.AUTH_DELETE_USER, username="bob")
        await trio.sleep(3)
        for name in NAMES:
            async with world.client(world.address(name)) as client:
                assert (await as_user(client, ALICE).pull()).code == 0
                assert (await as_user(client, BOB).pull()).remark == "check signature failed."
        await world.kill(master)
        others = [name for name in NAMES if name != master]
        new = await operators_master(world, *others)
        async with world.client(world.address(new)) as client:
            assert (await as_user(client, ALICE).send(b"y")).code == 0
            assert is_refused(await as_user(client, ALICE).send(b"y", topic="U"))
            assert (await as_user(client, BOB).send(b"y")).remark == "check signature failed."


async def test_a_slave_of_a_classic_group_copies_the_users(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(
        cluster_config(tmp_path, role="ASYNC_MASTER", clients=AUTHORIZED)
    ) as world:
        await world.start("a0", "a1")
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "Sub"))
            await make_user(client, BOB)
            await as_user(client, OPERATOR).send(b"x")
            await trio.sleep(15)
            async with world.client(SLAVE_1) as slave:
                assert bodies(await as_user(slave, ALICE).pull()) == [b"x"]
                assert is_refused(await as_user(slave, BOB).pull())
                await order(client, RequestCode.AUTH_DELETE_USER, username="alice")
                await grant(client, "bob", entry("Allow", "*", "Sub"))
                await trio.sleep(15)
            async with world.client(SLAVE_1) as slave:
                assert (await as_user(slave, ALICE).pull()).remark == "check signature failed."
                assert bodies(await as_user(slave, BOB).pull()) == [b"x"]
        await world.kill("a1")
        await world.start("a1")
        async with world.client(SLAVE_1) as slave:
            assert bodies(await as_user(slave, BOB).pull()) == [b"x"]


async def test_a_certificate_is_as_good_as_a_signature_of_the_user_it_names(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "Topic:T", "Pub"))
        names = {"alice": True, "nobody": False, "tandem-operator": False}
        for name, is_let_in in names.items():
            monkeypatch.setattr(SimulatedStream, "peer_name", name)
            async with world.client(MASTER) as shown:
                assert ((await shown.send(b"y")).code == 0) is is_let_in
                assert is_refused(await shown.send(b"y", topic="U"))
                # Who signs is who signs, whatever the certificate says.
                wrong = await as_user(shown, ("alice", "not her secret")).send(b"y")
                assert wrong.remark == "check signature failed."
        monkeypatch.setattr(SimulatedStream, "peer_name", "alice")
        async with world.client(MASTER) as shown:
            assert (await shown.send(b"y")).code == 0
            await order(client, UPDATE, username="alice", userStatus="disable")
            with pytest.raises(ConnectionLost):
                await shown.send(b"y")
        async with world.client(MASTER) as shown:
            assert is_refused(await shown.send(b"y"))


async def asked_of(world: World, ip: str, keys: Keys, seconds: float) -> list[int]:
    """Say to be a producer of the group p; return the codes of what the broker asks then."""
    beat = {"clientID": ip, "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    body = msgspec.json.encode(beat)
    signed = with_acl_signature(*keys, {}, body)
    heartbeat = RemotingCommand(RequestCode.HEART_BEAT, 1, ext=signed, body=body)
    stream = await world.network.machine(ip).connect(MASTER, 10911, source=ip)
    frames, codes = FrameBuffer(), []
    with trio.move_on_after(seconds):
        while True:
            await stream.send_all(encode_frame(heartbeat))
            with trio.move_on_after(20):
                while data := await stream.receive_some(65_536):
                    frames.receive_data(data)
                    while (command := frames.next_command()) is not None:
                        if not command.is_response:
                            codes.append(command.code)
    await stream.aclose()
    return codes


@pytest.mark.slow
async def test_a_half_is_shown_to_producers_who_may_write_its_topic(
    tmp_path: Path, autojump_clock: object
) -> None:
    """Anybody may say to be a producer of a group. RocketMQ 5.3.3 sends them its halves."""
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "Topic:Mine", "Pub"))
        await make_user(client, BOB, entry("Allow", "Topic:T", "Pub"))
        properties = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01AA\x02"
        now_ms = WallClock().now_ms()
        header = SendMessageRequestHeaderV2("p", "T", "TBW102", 4, 0, 4, now_ms, 0, properties)
        operator = as_user(client, OPERATOR)
        assert (await operator.call(RequestCode.SEND_MESSAGE_V2, header, b"half")).code == 0
        assert await asked_of(world, "10.0.0.60", ALICE, 150) == []
        asked = await asked_of(world, "10.0.0.61", BOB, 150)
        assert set(asked) == {RequestCode.CHECK_TRANSACTION_STATE}
