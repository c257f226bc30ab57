"""Requests and replies: a message that waits for what its consumer answers.

    requester --send, REPLY_TO_CLIENT = its client id--> topic --> a consumer, who replies
        ^                                                                  |
        |  PUSH_REPLY_MESSAGE_TO_CLIENT                SEND_REPLY_MESSAGE  |
        +------------------------------- broker <--------------------------+

A reply reaches the one client that asked, while it waits; it is not stored for later. The broker
finds it by its heartbeats, so it says hello before it asks.

Source: RocketMQ 5.3.3, DefaultMQProducerImpl.request, ClientRemotingProcessor.receiveReplyMessage,
MessageUtil.createReplyMessage.
"""

import logging
import uuid
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from tandem.client.async_shell import AsyncShell
from tandem.client.broker_request import BrokerRequest
from tandem.client.compression import decompressed
from tandem.client.core import ClientCore
from tandem.client.errors import ClientError, ReplyTimeoutError
from tandem.client.send_flow import Sender
from tandem.client.sending import SendOptions
from tandem.wire.errors import ArgumentError, WireError
from tandem.wire.message import Host, Message, MessageExt
from tandem.wire.message_properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    decode_properties,
)
from tandem.wire.reply_headers import ReplyMessageRequestHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.system_topics import REPLY_TOPIC_SUFFIX

logger = logging.getLogger(__name__)

REPLY_TYPE: Final = "reply"
"""The MSG_TYPE of a reply (MixAll.REPLY_MESSAGE_FLAG)."""

REQUEST_TIMEOUT_MS: Final = 3_000
"""RocketMQ's default for a request and its reply together."""

REPLY_SECONDS_MIN: Final = 1.0

_NO_HOST: Final = Host("0.0.0.0", 0)


def request_message(
    message: Message, correlation_id: str, client_id: str, timeout_ms: int
) -> Message:
    """Return the message that asks: who it is from, and how long a reply is waited for."""
    properties = {
        **message.properties,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_REPLY_TO_CLIENT: client_id,
        PROPERTY_TTL: str(timeout_ms),
    }
    return msgspec.structs.replace(message, properties=properties)


def reply_message(request: MessageExt, body: bytes, properties: dict[str, str]) -> Message:
    """Return the message that answers `request`.

    Raises:
        ArgumentError: nobody waits for a reply to this message.
    """
    said = request.properties
    wanted = (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT)
    missing = [name for name in wanted if not said.get(name)]
    if missing:
        raise ArgumentError(
            f"message {request.msg_id} asks for no reply: it has no property"
            f" {' and no '.join(missing)}; only what was sent by `request` can be replied to",
            *missing,
        )
    kept = {name: said[name] for name in (*wanted[1:], PROPERTY_TTL) if name in said}
    return Message(
        f"{said[PROPERTY_CLUSTER]}{REPLY_TOPIC_SUFFIX}",
        body,
        properties={**properties, PROPERTY_MESSAGE_TYPE: REPLY_TYPE, **kept},
    )


def reply_seconds(request: MessageExt, now_ms: int) -> float:
    """Return how much longer somebody waits for the reply, by its TTL and the broker's clock.

    At least a second: clocks differ.
    """
    ttl_text = request.properties.get(PROPERTY_TTL, "")
    ttl_ms = int(ttl_text) if ttl_text.isdecimal() else REQUEST_TIMEOUT_MS
    return max(REPLY_SECONDS_MIN, (request.store_timestamp_ms + ttl_ms - now_ms) / 1000)


def received_reply(request: BrokerRequest) -> tuple[str, MessageExt]:
    """Return the correlation id and the message of a reply that a broker has pushed.

    Raises:
        WireError: it cannot be read.
    """
    command = request.command
    header = command.decode_header(ReplyMessageRequestHeader)
    properties = decode_properties((header.properties or "").encode())
    message = MessageExt(
        topic=header.topic,
        body=command.body,
        properties=properties,
        queue_id=header.queue_id,
        queue_offset=-1,
        physical_offset=-1,
        store_size=0,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_crc=0,
    )
    return properties.get(PROPERTY_CORRELATION_ID, ""), message


def _host(text: str) -> Host:
    # Java writes an address without a name as "/127.0.0.1:10911".
    ip, _, port = text.rpartition("/")[2].rpartition(":")
    return Host(ip.strip("[]"), int(port)) if ip and port.isdecimal() else _NO_HOST


class PendingReplies:
    """The waiting callers, each with its reply."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[MessageExt], None]] = {}

    def wait_for(self, correlation_id: str, take: Callable[[MessageExt], None]) -> None:
        """Call `take` with the reply, once."""
        self._waiting[correlation_id] = take

    def forget(self, correlation_id: str) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(correlation_id, None)

    def deliver(self, request: BrokerRequest) -> None:
        """Take a reply that a broker has pushed. One that nobody waits for is dropped."""
        try:
            correlation_id, message = received_reply(request)
        except WireError as error:
            logger.warning("broker %s pushed what is no reply: %s", request.address, error)
        else:
            take = self._waiting.pop(correlation_id, None)
            if take is not None:
                take(message)
        request.answer()


class Requests:
    """The requests and replies of one producer."""

    def __init__(
        self,
        shell: AsyncShell,
        core: ClientCore,
        sender: Sender,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._wall_clock_ms = wall_clock_ms
        self._shell = shell
        self._core = core
        self._sender = sender
        self._pending = PendingReplies()
        core.broker_requests.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._pending.deliver)

    async def request(self, message: Message, timeout_ms: int, options: SendOptions) -> MessageExt:
        """Send a message and return its reply; see `Producer.request`."""
        correlation_id = str(uuid.uuid4())
        asking = request_message(message, correlation_id, self._core.identity.client_id, timeout_ms)
        replies: list[MessageExt] = []
        replied = anyio.Event()
        is_stored = False

        def take(reply: MessageExt) -> None:
            replies.append(reply)
            replied.set()

        self._pending.wait_for(correlation_id, take)
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                await self._say_hello(message.topic, timeout_ms)
                await self._shell.run(self._sender.send(asking, options))
                is_stored = True
                await replied.wait()
        finally:
            self._pending.forget(correlation_id)
        if not replies:
            raise ReplyTimeoutError(message.topic, timeout_ms, is_stored=is_stored)
        return decompressed(replies[0])

    async def _say_hello(self, topic: str, timeout_ms: int) -> None:
        """Let the brokers of a topic know where replies go."""
        try:
            deadline = self._core.clock() + timeout_ms / 1000
            await self._shell.run(self._core.route(topic, deadline, for_sends=True))
        except ClientError:
            # The send says what is wrong, and how long it has tried.
            return
        if strangers := self._core.strangers:
            await self._shell.run(self._core.heartbeat(strangers))

    async def reply(self, request: MessageExt, body: bytes, properties: dict[str, str]) -> None:
        """Answer a request; see `Producer.reply`."""
        seconds = reply_seconds(request, self._wall_clock_ms())
        message = reply_message(request, body, properties)
        await self._shell.run(self._sender.send_reply(message, seconds))
