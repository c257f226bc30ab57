"""Requests that no client would make, and the codes that are answered.

Arguments: an address, and topics: normal, FIFO, delay, transaction. Prints a line of JSON a case.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import grpc
from rocketmq.grpc_protocol import (
    definition_pb2,
    service_pb2,
    service_pb2_grpc,
)

address, normal, fifo, delay, transaction = sys.argv[1:6]
stub = service_pb2_grpc.MessagingServiceStub(grpc.insecure_channel(address))
group = "codes-group"
broker = ""


def headers(client_id: str | None = "codes") -> list[tuple[str, str]]:
    own = [("x-mq-client-id", client_id)] if client_id is not None else []
    return [
        *own,
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", "5.1.2"),
        ("x-mq-protocol", "v2"),
        ("x-mq-date-time", "20260101T000000Z"),
    ]


def resource(name: str) -> Any:  # noqa: ANN401
    return definition_pb2.Resource(name=name)


def endpoints() -> Any:  # noqa: ANN401
    host, _, port = address.rpartition(":")
    own = definition_pb2.Endpoints(scheme=definition_pb2.AddressScheme.IPv4)
    own.addresses.add(host=host, port=int(port))
    return own


def route(topic: str, client_id: str | None = "codes") -> Any:  # noqa: ANN401
    request = service_pb2.QueryRouteRequest(topic=resource(topic), endpoints=endpoints())
    return stub.QueryRoute(request, metadata=headers(client_id), timeout=20)


def message(topic: str = normal, body: bytes = b"x", **system: Any) -> Any:  # noqa: ANN401
    made = definition_pb2.Message(topic=resource(topic), body=body)
    made.user_properties.update(system.pop("properties", {}))
    own = made.system_properties
    own.message_id = system.pop("message_id", "01FB6B2E0635F06D770B18C67F00000001")
    own.message_type = system.pop("message_type", definition_pb2.MessageType.NORMAL)
    own.body_encoding = definition_pb2.Encoding.IDENTITY
    own.born_host = "here"
    own.born_timestamp.GetCurrentTime()
    own.keys.extend(system.pop("keys", []))
    in_seconds = system.pop("in_seconds", None)
    if in_seconds is not None:
        own.delivery_timestamp.FromSeconds(int(time.time()) + in_seconds)  # noqa: TID251
    for name, value in system.items():
        setattr(own, name, value)
    return made


def send(*messages: Any) -> Any:  # noqa: ANN401
    request = service_pb2.SendMessageRequest(messages=messages)
    return stub.SendMessage(request, metadata=headers(), timeout=20)


def receive(topic: str = normal, of_group: str = group, **fields: Any) -> Any:  # noqa: ANN401
    request = service_pb2.ReceiveMessageRequest(group=resource(of_group), batch_size=1)
    request.message_queue.topic.name, request.message_queue.broker.name = topic, broker
    request.message_queue.id = -1
    request.filter_expression.type = fields.get("type", definition_pb2.FilterType.TAG)
    request.filter_expression.expression = fields.get("expression", "*")
    request.invisible_duration.FromSeconds(fields.get("invisible", 30))
    request.long_polling_timeout.FromSeconds(5)
    stream = stub.ReceiveMessage(
        request, metadata=headers("codes-consumer"), timeout=fields.get("timeout", 20)
    )
    return next(each for each in list(stream) if each.HasField("status"))


def ack(handle: str | None) -> Any:  # noqa: ANN401
    request = service_pb2.AckMessageRequest(group=resource(group), topic=resource(normal))
    if handle is not None:
        request.entries.add(message_id="0" * 34, receipt_handle=handle)
    answer = stub.AckMessage(request, metadata=headers("codes-consumer"), timeout=20)
    return answer.entries[0] if answer.entries else answer


def change(seconds: int) -> Any:  # noqa: ANN401
    request = service_pb2.ChangeInvisibleDurationRequest(
        group=resource(group),
        topic=resource(normal),
        receipt_handle=handle_of(60),
        message_id="0" * 34,
    )
    request.invisible_duration.FromSeconds(seconds)
    return stub.ChangeInvisibleDuration(request, metadata=headers("codes-consumer"), timeout=20)


def handle_of(seconds_left: int) -> str:
    popped = int(time.time() * 1000) + (seconds_left - 60) * 1000  # noqa: TID251
    return f"0 {popped} 60000 0 0 {broker} 0 0 0"


def end(transaction_id: str) -> Any:  # noqa: ANN401
    request = service_pb2.EndTransactionRequest(
        topic=resource(transaction),
        message_id="0" * 34,
        transaction_id=transaction_id,
        resolution=1,
    )
    return stub.EndTransaction(request, metadata=headers(), timeout=20)


def recall(topic: str, handle: str) -> Any:  # noqa: ANN401
    request = service_pb2.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
    return stub.RecallMessage(request, metadata=headers(), timeout=20)


def heartbeat() -> Any:  # noqa: ANN401
    request = service_pb2.HeartbeatRequest(client_type=definition_pb2.ClientType.PRODUCER)
    return stub.Heartbeat(request, metadata=headers("nobody"), timeout=20)


def settings(client_id: str, *, consumes: bool) -> Any:  # noqa: ANN401
    command = service_pb2.TelemetryCommand()
    own = command.settings
    own.access_point.CopyFrom(endpoints())
    if consumes:
        own.client_type = definition_pb2.ClientType.SIMPLE_CONSUMER
        own.subscription.group.name = group
        entry = own.subscription.subscriptions.add()
        entry.topic.name = normal
        entry.expression.type, entry.expression.expression = definition_pb2.FilterType.TAG, "*"
    else:
        own.client_type = definition_pb2.ClientType.PRODUCER
        for topic in (normal, fifo, delay, transaction):
            own.publishing.topics.add(name=topic)
    over: list[Any] = [command]

    def commands() -> Any:  # noqa: ANN401
        yield over[0]
        while True:
            time.sleep(1)  # noqa: TID251 - the stream stays open
            yield over[0]

    stream = stub.Telemetry(commands(), metadata=headers(client_id))
    next(iter(stream))
    return stream


MiB = 1024 * 1024
MESSAGE_TYPE = definition_pb2.MessageType


def cases() -> dict[str, Any]:
    """What is asked, by name; each is called, and its answer has a status."""
    return {
        "route without a client id": lambda: route(normal, None),
        "route with a blank client id": lambda: route(normal, " "),
        "route of an unknown topic": lambda: route("codes-nowhere"),
        "route of an illegal topic": lambda: route("a b"),
        "route of a system topic": lambda: route("SCHEDULE_TOPIC_XXXX"),
        "send": lambda: send(message()),
        "send nothing": send,
        "send to two topics": lambda: send(message(), message(fifo)),
        "send to an illegal topic": lambda: send(message("a b")),
        "send an empty body": lambda: send(message(body=b"")),
        "send 4 MiB and a byte": lambda: send(message(body=b"x" * (4 * MiB + 1))),
        "send without an id": lambda: send(message(message_id="")),
        "send another type": lambda: send(message(fifo)),
        "send to an unknown topic": lambda: send(message("codes-nowhere")),
        "send a tag with a bar": lambda: send(message(tag="a|b")),
        "send a blank tag": lambda: send(message(tag=" ")),
        "send a control character in a key": lambda: send(message(keys=["a\x01"])),
        "send a blank message group": lambda: send(
            message(fifo, message_group=" ", message_type=MESSAGE_TYPE.FIFO)
        ),
        "send a message group of 64": lambda: send(
            message(fifo, message_group="m" * 64, message_type=MESSAGE_TYPE.FIFO)
        ),
        "send a reserved property": lambda: send(message(properties={"TAGS": "x"})),
        "send 129 properties": lambda: send(
            message(properties={f"k{number}": "v" for number in range(129)})
        ),
        "send 17 KB of properties": lambda: send(message(properties={"k": "v" * 17_000})),
        "send for 25 hours later": lambda: send(
            message(delay, in_seconds=90_000, message_type=MESSAGE_TYPE.DELAY)
        ),
        "receive nothing": lambda: receive(transaction),
        "receive as a blank group": lambda: receive(of_group=" "),
        "receive as a system group": lambda: receive(of_group="CID_RMQ_SYS_x"),
        "receive from an unknown topic": lambda: receive("codes-nowhere"),
        "receive, invisible for 9 s": lambda: receive(invisible=9),
        "receive, invisible for 13 h": lambda: receive(invisible=46_800),
        "receive in 3 s": lambda: receive(timeout=3),
        "receive with bad SQL": lambda: receive(
            type=definition_pb2.FilterType.SQL, expression="a >"
        ),
        "acknowledge nothing": lambda: ack(None),
        "acknowledge garbage": lambda: ack("garbage"),
        "acknowledge what is expired": lambda: ack(handle_of(-1)),
        "acknowledge what was never given": lambda: ack(handle_of(60)),
        "change to 13 h": lambda: change(46_800),
        "end a blank transaction": lambda: end(" "),
        "end an unknown transaction": lambda: end("01FB6B2E0635F06D770B18C67F00000009"),
        "recall by garbage": lambda: recall(delay, "garbage"),
        "recall of a normal topic": lambda: recall(normal, "garbage"),
        "heartbeat without settings": heartbeat,
    }


def code_of(ask: Any) -> str:  # noqa: ANN401
    try:
        answer = ask()
    except grpc.RpcError as error:
        return f"gRPC {error.code().name}"
    status = answer.status
    return str(definition_pb2.Code.Name(status.code))


if __name__ == "__main__":
    broker = route(normal).message_queues[0].broker.name
    kept = [settings("codes", consumes=False), settings("codes-consumer", consumes=True)]
    time.sleep(2)  # noqa: TID251 - a proxy has applied them
    for name, ask in cases().items():
        sys.stdout.write(json.dumps({"name": name, "code": code_of(ask)}) + "\n")
        sys.stdout.flush()
