"""The audit trail: what is in it, and what never is."""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

import node.run  # noqa: F401  with it all that declares requests
from node.remoting.connection import Connection, Outbox
from node.security.audit import AUDIT_LOGGER, Audit, is_change
from node.security.guard import Guard
from node.security.request import REQUESTS
from tandem.cluster_file.choices import ClientAccess
from tandem.process_log import REPEATS_MAX
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import FakeStream
from tests.node.security.users_world import (
    ALICE,
    AUTHORIZED,
    OPERATOR,
    STRANGER,
    as_user,
    classic_world,
    entry,
    make_user,
    order,
    sample,
)
from tests.node.world import MASTER, cluster_config, open_world


class Trail(logging.Handler):
    """The lines that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(text) for text in self.texts]

    def of(self, code: RequestCode) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["code"] == code]


@contextmanager
def heard() -> Iterator[Trail]:
    trail, logger = Trail(), logging.getLogger(AUDIT_LOGGER)
    level = logger.level
    logger.addHandler(trail)
    logger.setLevel(logging.INFO)
    try:
        yield trail
    finally:
        logger.removeHandler(trail)
        logger.setLevel(level)


def test_what_clients_do_all_the_time_is_no_change_and_what_operators_order_is() -> None:
    changes = {RequestCode(code) for code, each in REQUESTS.items() if is_change(each)}
    all_the_time = {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.REGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.LOCK_BATCH_MQ,
    }
    orders = {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.FENCED_COMMAND,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_DELETE_ACL,
    }
    assert changes >= orders
    assert not changes & all_the_time


async def test_a_change_says_who_from_where_what_and_what_came_of_it(
    tmp_path: Path, autojump_clock: object
) -> None:
    with heard() as trail:
        async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "Topic:A*", "Create"))
            alice = as_user(client, ALICE)
            ext, _ = sample(RequestCode.UPDATE_AND_CREATE_TOPIC)
            ext |= {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topic": "A1"}
            for fields in (ext, ext | {"topic": "A2", "perm": "99"}, ext | {"topic": "B"}):
                await alice.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            await alice.send(b"y", topic="A1")
    made, bad, refused = trail.of(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert made["who"] == bad["who"] == "user alice"
    assert made["from"].startswith("10.0.0.9:")
    assert made["request"] == "UPDATE_AND_CREATE_TOPIC"
    assert made["about"] == ["Topic:A1"]
    assert made["fields"]["readQueueNums"] == "1"
    assert (made["result"], bad["result"]) == ("SUCCESS", "INVALID_PARAMETER")
    assert bad["why"]
    assert refused["who"] == "says to be alice"
    assert refused["result"] == "NO_PERMISSION"
    assert "Topic:B" in refused["why"]
    assert {line["node"] for line in trail.lines} == {"a0"}
    (sent,) = trail.of(RequestCode.SEND_MESSAGE_V2)  # refused: there is no right to send
    assert sent["result"] == "NO_PERMISSION"
    assert "properties" not in str(sent)


async def test_no_line_has_a_secret_or_what_is_good_as_one(
    tmp_path: Path, autojump_clock: object
) -> None:
    with heard() as trail:
        async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "All"))
            await order(
                client, RequestCode.AUTH_UPDATE_USER, username="alice", password="another one"
            )
            operator = as_user(client, OPERATOR)
            value = {"namespace": "n", "key": "k", "value": "a secret value"}
            await operator.call(RequestCode.PUT_KV_CONFIG, value)
            await as_user(client, STRANGER).send(b"x")
    text = "\n".join(trail.texts)
    for secret in (ALICE[1], STRANGER[1], OPERATOR[1], "another one", "a secret value"):
        assert secret not in text
    for name in ("Signature", "sealed", "password"):
        assert name not in text
    created, changed = (
        *trail.of(RequestCode.AUTH_CREATE_USER),
        *trail.of(RequestCode.AUTH_UPDATE_USER),
    )
    assert msgspec.json.decode(created["body"]) == {
        "username": "alice",
        "userType": "Normal",
        "secret": "given",
    }
    assert msgspec.json.decode(changed["body"])["secret"] == "given"
    assert created["who"] == "tandem-operator"
    (granted,) = trail.of(RequestCode.AUTH_CREATE_ACL)
    assert "Allow" in granted["body"]


async def test_without_users_a_change_is_somebodys_whatever_they_say(
    tmp_path: Path, autojump_clock: object
) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER", clients=ClientAccess.OPEN)
    with heard() as trail:
        async with open_world(config) as world:
            await world.start("a0")
            async with world.client(MASTER) as client:
                fields = {"topic": "T", "AccessKey": OPERATOR[0], "Signature": "wrong"}
                await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, fields)
                await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=1")
                await client.call_signed(
                    RequestCode.UPDATE_BROKER_CONFIG,
                    body=b"fileReservedTime=1",
                    target=f"{MASTER}:10911",
                )
    (deleted,) = trail.of(RequestCode.DELETE_TOPIC_IN_BROKER)
    assert deleted["who"] == "anybody"
    refused, changed = trail.of(RequestCode.UPDATE_BROKER_CONFIG)
    assert (refused["who"], refused["result"]) == ("nobody", "NO_PERMISSION")
    assert changed["who"] == "a node, or who knows the secret"
    assert changed["body"] == "fileReservedTime=1"


async def test_refusals_of_one_sender_do_not_fill_the_trail(
    tmp_path: Path, autojump_clock: object
) -> None:
    with heard() as trail:
        async with classic_world(tmp_path, AUTHORIZED) as world:
            async with world.client(MASTER) as client:
                await make_user(client, ALICE)
            for _ in range(20):
                async with world.client(MASTER) as client:
                    for number in range(5):
                        # Other names and other codes do not make more lines of it.
                        keys = (f"name {number}", "x") if number else ALICE
                        await as_user(client, keys).send(b"x")
            await trio.sleep(11)
            async with world.client(MASTER) as client:
                await as_user(client, ALICE).send(b"x")
    refused = trail.of(RequestCode.SEND_MESSAGE_V2)
    assert len(refused) == REPEATS_MAX + 1
    (counted,) = [line for line in trail.lines if line.get("left_out")]
    assert counted["left_out"] == 100 - REPEATS_MAX
    assert counted["from"] == "10.0.0.9"


async def test_a_change_is_not_hidden_behind_another_of_the_same_number(tmp_path: Path) -> None:
    config = cluster_config(tmp_path, clients=ClientAccess.OPEN).node("a0")
    audit = Audit("a0", lambda: 0, trio.current_time)
    request = REQUESTS[RequestCode.DELETE_TOPIC_IN_BROKER]
    handle = Guard(config, random.Random(1), audit)._audited(request, lambda *_: None)
    connection = Connection(FakeStream(), Outbox())
    with heard() as trail:
        for topic in ("First", "Second"):
            handle(connection, RemotingCommand(request.code, 7, ext={"topic": topic}))
        connection.close()
    assert [line["about"] for line in trail.lines] == [["Topic:First"], ["Topic:Second"]]


async def test_a_secret_under_a_misspelt_name_is_in_no_line(
    tmp_path: Path, autojump_clock: object
) -> None:
    with heard() as trail:
        async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
            body = msgspec.json.encode({"Password": "a misspelt secret", "userType": "Super"})
            fields = {"username": "alice", "password": "a misplaced secret"}
            await as_user(client, OPERATOR).call(RequestCode.AUTH_CREATE_USER, fields, body)
    (line,) = trail.of(RequestCode.AUTH_CREATE_USER)
    assert "misspelt" not in str(line)
    assert "misplaced" not in str(line)
    assert msgspec.json.decode(line["body"]) == {"userType": "Super", "secret": "given"}


async def test_a_change_whose_connection_ends_before_the_answer_is_in_the_trail_too(
    tmp_path: Path, autojump_clock: object
) -> None:

    with heard() as trail:
        audit = Audit("a0", lambda: 1_700_000_000_123, trio.current_time)
        connection = Connection(FakeStream(), Outbox())
        command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, 7, ext={"topic": "T"})
        request = REQUESTS[RequestCode.DELETE_TOPIC_IN_BROKER]
        connection.when_answered[7] = audit.begun(
            request, "user alice", connection, command, command.ext_fields()
        )
        assert trail.lines == []
        connection.close()
        connection.close()
    (line,) = trail.lines
    assert (line["result"], line["time"]) == ("-1", "2023-11-14T22:13:20.123Z")
    assert "before the answer" in line["why"]
    assert ResponseCode.SUCCESS.name not in str(line)
