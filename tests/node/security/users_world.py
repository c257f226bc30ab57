"""A cluster that asks for users, and requests that they sign; use it with `autojump_clock`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from node.security.request import REQUESTS
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.ha_status import FencedStatus
from tandem.wire.remoting_command import Ext, RemotingCommand, text_fields
from tandem.wire.request_code import RequestCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key
from tests.node.world import (
    MASTER,
    NAMES,
    Caller,
    World,
    cluster_config,
    fenced_cluster,
    open_world,
)
from tests.support.secret import SECRET

AUTHENTICATED, AUTHORIZED = ClientAccess.AUTHENTICATED, ClientAccess.AUTHORIZED
OPERATOR = (OPERATOR_ACCESS_KEY, operator_secret_key(SECRET))
ALICE, BOB, ROOT = (
    ("alice", "a secret of alice"),
    ("bob", "a secret of bob"),
    ("root", "a secret of root"),
)
STRANGER = ("stranger", "nobody has this")
Keys = tuple[str, str]


class Signed(Caller):
    """The requests of one user on one connection."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        super().__init__(caller._client)
        self.keys = keys

    async def call(self, code: int, ext: Ext = None, body: bytes = b"") -> RemotingCommand:
        fields = text_fields(RemotingCommand(code, ext=ext))
        return await super().call(code, with_acl_signature(*self.keys, fields, body), body)


def as_user(caller: Caller, keys: Keys) -> Signed:
    return Signed(caller, keys)


def entry(decision: str, resource: str, *actions: str) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision}


async def make_user(
    caller: Caller, keys: Keys, *entries: dict[str, Any], kind: str = "Normal"
) -> None:
    """Have the operator make a user who may what entries say."""
    operator = as_user(caller, OPERATOR)
    name, secret = keys
    body = msgspec.json.encode({"username": name, "password": secret, "userType": kind})
    answer = await operator.call(RequestCode.AUTH_CREATE_USER, {"username": name}, body)
    assert answer.code == 0, answer.remark
    if entries:
        await grant(caller, name, *entries)


async def grant(caller: Caller, name: str, *entries: dict[str, Any]) -> None:
    body = msgspec.json.encode({"policies": [{"entries": entries}]})
    operator = as_user(caller, OPERATOR)
    answer = await operator.call(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)
    assert answer.code == 0, answer.remark


async def order(caller: Caller, code: RequestCode, **ext: str) -> None:
    """Have the operator do something."""
    body = {key: ext.pop(key) for key in ("userStatus", "password") if key in ext}
    operator = as_user(caller, OPERATOR)
    answer = await operator.call(code, ext, msgspec.json.encode(body) if body else b"")
    assert answer.code == 0, answer.remark


@asynccontextmanager
async def classic_world(directory: Path, clients: ClientAccess) -> AsyncIterator[World]:
    """One node with the topic T, in which is a message, and the group g."""
    async with open_world(cluster_config(directory, role="ASYNC_MASTER", clients=clients)) as world:
        await world.start("a0")
        async with world.client(MASTER) as client:
            operator = as_user(client, OPERATOR)
            assert (await operator.send(b"x")).code == 0
        yield world


@asynccontextmanager
async def fenced_world(directory: Path, clients: ClientAccess) -> AsyncIterator[World]:
    async with open_world(fenced_cluster(directory, clients=clients)) as world:
        yield world


SAMPLE_FIELDS: dict[str, str] = {
    "topic": "T",
    "lite_topic": "T",
    "default_topic": "TBW102",
    "consumer_group": "g",
    "producer_group": "p",
    "group": "g",
    "group_name": "g",
    "src_group": "g",
    "dest_group": "g",
    "compare_group": "g",
    "filter_groups": "g",
    "cluster": "DefaultCluster",
    "cluster_name": "DefaultCluster",
    "broker_name": "broker-a",
    "broker_addr": "10.0.0.9:6666",
    "ha_server_addr": "10.0.0.9:6666",
    "client_id": "c",
    "client_addr": "c",
    "namespace": "n",
    "key": "k",
    "value": "v",
    "stats_name": "TOPIC_PUT_NUMS",
    "stats_key": "T",
    "username": "alice",
    "subject": "User:alice",
    "topic_filter_type": "SINGLE_TAG",
    "subscription": "*",
    "properties": "",
}

_QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
SAMPLE_BODIES: dict[int, object] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "T", "subString": "*"}],
            }
        ],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [_QUEUE]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [_QUEUE]},
    RequestCode.CHECK_CLIENT_CONFIG: {
        "clientId": "c",
        "group": "g",
        "subscriptionData": {"topic": "T", "subString": "a > 1", "expressionType": "SQL92"},
    },
    RequestCode.QUERY_ASSIGNMENT: {
        "topic": "T",
        "consumerGroup": "g",
        "clientId": "c",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    },
    RequestCode.SET_MESSAGE_REQUEST_MODE: {
        "topic": "T",
        "consumerGroup": "g",
        "mode": "PULL",
        "popShareQueueNum": 0,
    },
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"b": "AQ==", "c": "g", "t": "T", "r": "0"}]},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": "New"}]},
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: {"topic": "New"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "new"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {
        "groupConfigList": [{"groupName": "new"}]
    },
}


def sample(code: int) -> tuple[dict[str, str], bytes]:
    """Return a request of a code that is about the topic T and the group g, as far as it can be."""
    header = REQUESTS[code].header
    ext: dict[str, str] = {}
    if header is not None:
        for field in msgspec.structs.fields(header):
            if field.name in SAMPLE_FIELDS:
                ext[field.encode_name] = SAMPLE_FIELDS[field.name]
            elif field.required:
                ext[field.encode_name] = "false" if field.type is bool else "0"
    body = SAMPLE_BODIES.get(code)
    return ext, b"" if body is None else msgspec.json.encode(body)


async def operators_master(world: World, *among: str) -> str:
    """As `World.master`, which asks without a signature."""
    with trio.fail_after(300):
        while True:
            for name in among or NAMES:
                async with world.client(world.address(name)) as client:
                    answer = await as_user(client, OPERATOR).call(RequestCode.FENCED_STATUS)
                    status = msgspec.json.decode(answer.body, type=FencedStatus)
                    if status.role == "MASTER" and not status.refusal:
                        return name
            await trio.sleep(0.1)
