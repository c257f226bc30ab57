"""What operators ask a member of a group, through the broker that it is connected to.

    GET_CONSUMER_RUNNING_INFO        what it reads, how far it is, how much is out (consumerStatus)
    GET_CONSUMER_STATUS_FROM_CLIENT  the offsets of its queues
    RESET_CONSUMER_CLIENT_OFFSET     go to these offsets (brokers of 4.x; later ones answer a pull)

Java's tools write and read maps whose keys are objects, which is no JSON.

Source: RocketMQ 5.3.3, ClientRemotingProcessor; ConsumerRunningInfo, GetConsumerStatusBody,
ResetOffsetBody.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tandem.client.broker_request import BrokerRequest, BrokerRequests
from tandem.client.group_reader import GroupReader
from tandem.client.results import MessageQueue
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody, SubscriptionData
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError, decode_json

RESET_BYTES_MAX: Final = 1024 * 1024
"""What is looked at of a list of offsets: some ten thousand queues."""

_ENTRY: Final = re.compile(rb"(\{[^{}]{0,1000}\})\s*:\s*(\d{1,18})(?!\d)")


class _QueueInfo(msgspec.Struct, rename="camel"):
    """ProcessQueueInfo, as far as it has a meaning here."""

    commit_offset: int
    cached_msg_count: int
    cached_msg_size_in_mi_b: int
    locked: bool
    droped: bool = False
    """As the class spells it."""


class OperatorRequests:
    """Serves them for one member."""

    def __init__(
        self, reader: GroupReader, requests: BrokerRequests, *, name_servers: str, started_ms: int
    ) -> None:
        self._reader = reader
        self._name_servers = name_servers
        self._started_ms = started_ms
        requests.on(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        requests.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        requests.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)

    def _running_info(self, request: BrokerRequest) -> None:
        settings = self._reader.settings
        properties = {
            "PROP_NAMESERVER_ADDR": self._name_servers,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": str(settings.orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CLIENT_VERSION": "V5_3_3",
            "messageModel": settings.message_model.upper(),
        }
        infos = {
            queue: _QueueInfo(
                reader.process_queue.commit_offset,
                reader.process_queue.unfinished_count,
                reader.process_queue.bytes_count // (1024 * 1024),
                settings.orderly,
            )
            for queue, reader in sorted(self._reader.readers.items())
        }
        subscriptions: list[SubscriptionData] = self._reader.consumer_data.subscription_data_set
        parts = (
            b'"mqTable":' + _java_map(infos),
            b'"properties":' + msgspec.json.encode(properties),
            b'"statusTable":{}',
            b'"subscriptionSet":' + msgspec.json.encode(subscriptions),
        )
        request.answer(body=b"{" + b",".join(parts) + b"}")

    def _status(self, request: BrokerRequest) -> None:
        offsets = {
            queue: reader.process_queue.commit_offset
            for queue, reader in sorted(self._reader.readers.items())
        }
        request.answer(body=b'{"consumerTable":{},"messageQueueTable":' + _java_map(offsets) + b"}")

    def _reset(self, request: BrokerRequest) -> None:
        body = request.command.body
        if len(body) > RESET_BYTES_MAX:
            request.answer(ResponseCode.SYSTEM_ERROR, f"{len(body)} bytes of offsets are too many")
            return
        for found in _ENTRY.finditer(body):
            try:
                of = decode_json(found[1], MessageQueueBody)
            except UnreadableError:
                continue
            reader = self._reader.readers.get(MessageQueue(of.topic, of.broker_name, of.queue_id))
            if reader is not None:
                self._reader.move(reader, int(found[2]))
        request.answer()


def _java_map(values: Mapping[MessageQueue, object]) -> bytes:
    """Return a map with queues for keys, as fastjson writes it."""
    entries = [
        msgspec.json.encode(MessageQueueBody(queue.broker_name, queue.queue_id, queue.topic))
        + b":"
        + msgspec.json.encode(value)
        for queue, value in values.items()
    ]
    return b"{" + b",".join(entries) + b"}"
