"""Whole nodes that serve gRPC, on a simulated network; use it with `autojump_clock`."""

from typing import Any

import msgspec
import trio

from node.grpc.protocol import messages as pb
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader
from tests.node.grpc.h2_client import Client
from tests.node.world import Caller

ID = "0102FC0000000115D10B1C176A000000"


def with_grpc(config: ClusterConfig, **broker: Any) -> ClusterConfig:  # noqa: ANN401 - settings of all kinds
    """The same cluster, whose nodes serve gRPC."""
    settings = msgspec.structs.replace(config.broker, grpc_enable=True, **broker)
    return msgspec.structs.replace(config, broker=settings)


async def make_topic(caller: Caller, topic: str, kind: str | None = None, queues: int = 4) -> None:
    attributes = None if kind is None else f"+message.type={kind}"
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=attributes,
    )
    answer = await caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == 0, answer.remark


def endpoints(*hosts: str) -> pb.Endpoints:
    found = pb.Endpoints(scheme=pb.IPv4)
    for host in hosts or ("10.0.0.1",):
        found.addresses.add(host=host, port=10911)
    return found


def message(topic: str = "T", body: bytes = b"hello", number: int = 1, **system: Any) -> pb.Message:  # noqa: ANN401
    found = pb.Message(body=body)
    found.topic.name = topic
    properties = found.system_properties
    properties.message_id = f"{ID}{number:02X}"
    properties.message_type = system.pop("message_type", pb.NORMAL)
    properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    properties.born_host = "host-of-the-client"
    if (deliver_ms := system.pop("deliver_ms", None)) is not None:
        properties.delivery_timestamp.FromMilliseconds(deliver_ms)
    properties.keys.extend(system.pop("keys", ()))
    for name, value in system.items():
        setattr(properties, name, value)
    return found


async def send(client: Client, *messages: pb.Message) -> pb.SendMessageResponse:
    found: pb.SendMessageResponse = await client.call(
        "SendMessage", pb.SendMessageRequest(messages=messages)
    )
    return found


def receiving(topic: str = "T", group: str = "g", **fields: Any) -> pb.ReceiveMessageRequest:  # noqa: ANN401
    request = pb.ReceiveMessageRequest(batch_size=fields.pop("batch_size", 32))
    request.group.name, request.message_queue.topic.name = group, topic
    request.message_queue.id, request.message_queue.broker.name = -1, "broker-a"
    request.filter_expression.type = fields.pop("filter_type", pb.TAG)
    request.filter_expression.expression = fields.pop("expression", "*")
    request.long_polling_timeout.FromSeconds(fields.pop("poll_seconds", 5))
    if not fields.get("auto_renew"):
        request.invisible_duration.FromSeconds(fields.pop("invisible_seconds", 30))
    for name, value in fields.items():
        setattr(request, name, value)
    return request


class Batch(msgspec.Struct):
    """What a receive was answered."""

    status: pb.Status
    messages: list[pb.Message]
    has_time: bool

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    @property
    def handles(self) -> list[str]:
        return [each.system_properties.receipt_handle for each in self.messages]


async def receive(client: Client, request: pb.ReceiveMessageRequest) -> Batch:
    reply = await client.until(await client.begin("ReceiveMessage", request))
    assert (reply.status, reply.reset) == (0, None)
    parts = [pb.ReceiveMessageResponse.FromString(each) for each in reply.messages()]
    kinds = [each.WhichOneof("content") for each in parts]
    assert kinds == ["status", *["message"] * (len(parts) - 2), "delivery_timestamp"]
    return Batch(parts[0].status, [each.message for each in parts[1:-1]], has_time=True)


async def acknowledge(
    client: Client, *handles: str, topic: str = "T", group: str = "g"
) -> pb.AckMessageResponse:
    request = pb.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for handle in handles:
        request.entries.add(message_id="m", receipt_handle=handle)
    found: pb.AckMessageResponse = await client.call("AckMessage", request)
    return found


async def change(
    client: Client, handle: str, seconds: int, topic: str = "T", group: str = "g"
) -> pb.ChangeInvisibleDurationResponse:
    request = pb.ChangeInvisibleDurationRequest(receipt_handle=handle, message_id="m")
    request.group.name, request.topic.name = group, topic
    request.invisible_duration.FromSeconds(seconds)
    found: pb.ChangeInvisibleDurationResponse = await client.call(
        "ChangeInvisibleDuration", request
    )
    return found


async def begun(client: Client, topic: str = "T", group: str = "g") -> None:
    """Have a group begin at the end of a topic."""
    while (batch := await receive(client, receiving(topic, group))).messages:
        await acknowledge(client, *batch.handles, topic=topic, group=group)


async def all_of(client: Client, count: int, request: pb.ReceiveMessageRequest) -> list[pb.Message]:
    found: list[pb.Message] = []
    with trio.fail_after(300):
        while len(found) < count:
            batch = await receive(client, request)
            assert batch.status.code in (pb.OK, pb.MESSAGE_NOT_FOUND), batch
            found += batch.messages
    return found


def publishing(*topics: str) -> pb.TelemetryCommand:
    command = pb.TelemetryCommand()
    command.settings.client_type = pb.PRODUCER
    for topic in topics:
        command.settings.publishing.topics.add(name=topic)
    return command
