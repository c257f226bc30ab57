"""Whole nodes that serve gRPC, on a simulated network; use it with `autojump_clock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from node.grpc.protocol import messages as pb
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader

if TYPE_CHECKING:
    from tandem.cluster_file.cluster_config import ClusterConfig
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


def publishing(*topics: str) -> pb.TelemetryCommand:
    command = pb.TelemetryCommand()
    command.settings.client_type = pb.PRODUCER
    for topic in topics:
        command.settings.publishing.topics.add(name=topic)
    return command
