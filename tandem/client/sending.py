"""What a producer sends: a message or a batch of them, as a request that may take several tries."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.client.ack import ACK_PROPERTIES, Ack, chosen_ack
from tandem.client.backoff import retry_pause_seconds
from tandem.client.errors import RequestTimeoutError, SendTimeoutError
from tandem.client.identity import UniqueKeys
from tandem.wire.batch_body import encode_batch_entry
from tandem.wire.compression import COMPRESSION_TYPES, Codec, compress
from tandem.wire.errors import ArgumentError
from tandem.wire.message import COMPRESSED_FLAG, Message, encode_batch_body
from tandem.wire.message_choices import DELAY_FIELDS
from tandem.wire.message_properties import (
    ACK_FLUSHED,
    PROPERTIES_BYTES_MAX,
    PROPERTY_ACK,
    PROPERTY_SHARDING_KEY,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
    java_string_hash,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from tandem.client.errors import ClientError, SendInDoubtError
    from tandem.client.results import SendResult
    from tandem.client.routes import PublishQueue

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""RocketMQ's maxMessageSize, of producer and broker."""

USER_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 256
"""The record has 32,767 bytes for all. 256 are left for what is added (RocketMQ: 128 or less)."""

BARE_ENTRY_BYTES: Final = 96
"""What a message adds to a batch beside its body, at most, if it has no property but its key."""

SEND: Final = RequestCode.SEND_MESSAGE_V2.value
SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
SEND_REPLY: Final = RequestCode.SEND_REPLY_MESSAGE_V2.value


MANY_MESSAGES_MAX: Final = 1024
MANY_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of a `send_many` is in flight at once: bounds memory here and at the broker."""


class SendSettings(msgspec.Struct, frozen=True):
    """How a producer sends; see `Producer`."""

    group: str
    ack: Ack = Ack.REPLICATED
    retry_times_when_send_failed: int | None = None
    send_msg_timeout_ms: int = 12_000
    attempt_timeout_ms: int = 4_000
    resend_until_ok: bool | None = None
    max_message_size_bytes: int = MESSAGE_BYTES_MAX
    compress_over_bytes: int | None = None
    compression: Codec = "zlib"


class SendOptions(msgspec.Struct, frozen=True):
    """What the caller of one send says about it; None: as the producer does it."""

    queue_id: int | None = None
    wait_store_msg_ok: bool | None = None
    ack: Ack | None = None
    sharding_key: str = ""


NO_OPTIONS: Final = SendOptions()


class Sending:
    """One message or batch on its way, over all its tries."""

    __slots__ = (
        "avoid_broker",
        "body",
        "code",
        "deadline",
        "doubtful_tries",
        "flag",
        "msg_id",
        "properties",
        "queue_id",
        "sharding_hash",
        "stored",
        "sys_flag",
        "target",
        "topic",
        "tries_count",
        "tries_left",
        "unknown",
    )

    def __init__(
        self,
        code: int,
        topic: str,
        msg_id: str,
        properties: str,
        body: bytes,
        flag: int,
        queue_id: int | None,
        deadline: float,
        tries: int,
    ) -> None:
        self.code = code
        self.topic = topic
        self.msg_id = msg_id
        self.properties = properties
        self.body = body
        self.flag = flag
        self.queue_id = queue_id
        self.sharding_hash: int | None = None
        """Of the key that chooses the queue, every try the same one; None: the queue whose turn."""
        self.sys_flag = 0
        self.deadline = deadline
        self.tries_left = tries
        self.tries_count = 0
        self.doubtful_tries = 0
        """How many of them ended with what mostly does not pass: no such topic."""
        self.avoid_broker: str | None = None
        self.target: PublishQueue | None = None
        self.unknown: ClientError | None = None
        """The first try that may have been carried out without an answer."""
        self.stored: SendResult | SendInDoubtError | None = None
        """The last answer that says: stored, but not known to be safe."""

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next try; the second one comes at once."""
        return 0.0 if self.tries_count < 2 else retry_pause_seconds(self.tries_count - 2)

    def outcome(self, last_error: "ClientError") -> "SendResult | ClientError":
        """Return what the user gets: what is unknown stays unknown, whatever came after it."""
        if self.stored is not None:
            return self.stored
        error = last_error
        if self.unknown is not None and not last_error.outcome_unknown:
            error = self.unknown
            error.__cause__ = last_error
        if isinstance(error, RequestTimeoutError) and not isinstance(error, SendTimeoutError):
            timeout = SendTimeoutError(error.address, outcome_unknown=error.outcome_unknown)
            timeout.__cause__ = error.__cause__
            return timeout
        return error


class Sendings:
    """Makes the sendings of one producer. `clock` is the shell's, in seconds."""

    def __init__(
        self,
        settings: SendSettings,
        keys: UniqueKeys,
        clock: Callable[[], float],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._ack_properties = ACK_PROPERTIES[settings.ack]
        self._send_seconds = settings.send_msg_timeout_ms / 1000
        retries = settings.retry_times_when_send_failed
        self._tries = sys.maxsize if retries is None else 1 + retries
        over = settings.compress_over_bytes
        self.compressed_from_bytes = sys.maxsize if over is None else over
        self.body_bytes_max = settings.max_message_size_bytes
        """Of a request: of a message or a batch."""

    def one(self, message: Message, options: SendOptions) -> Sending:
        """Return one message as a request.

        Raises:
            ArgumentError: it cannot be sent as it is.
        """
        if options is NO_OPTIONS and message.is_plain and not message.keys and not message.tags:
            return self._bare(message)
        sending = self._sending(
            SEND,
            message.topic,
            self._keys.next_key(self._wall_clock_ms()),
            _property_map(message, options),
            message.wait_store_msg_ok,
            message.body,
            message.flag,
            options,
        )
        self._order(sending, options.sharding_key or message.sharding_key)
        if len(message.body) >= self.compressed_from_bytes:
            self._compress(sending)
        return sending

    def _bare(self, message: Message) -> Sending:
        """Do as `one` does with a message that has no property but its key; they are many."""
        body = message.body
        self._check_size(body)
        unique_key = self._keys.next_key(self._wall_clock_ms())
        sending = Sending(
            SEND,
            message.topic,
            unique_key,
            f"{self._ack_properties}{PROPERTY_UNIQUE_KEY}\x01{unique_key}\x02",
            body,
            message.flag,
            None,
            self._clock() + self._send_seconds,
            self._tries,
        )
        if len(body) >= self.compressed_from_bytes:
            self._compress(sending)
        return sending

    def batch(self, messages: Sequence[Message], options: SendOptions) -> Sending:
        """Return messages of one topic as one request.

        Raises:
            ArgumentError: no message, several topics, or one of them cannot be sent as it is.
        """
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            text = f"a batch has one topic; this one has {len(topics)}: {', '.join(sorted(topics))}"
            raise ArgumentError(text, "topic")
        if not all(message.is_for_a_batch for message in messages):
            text = "the messages of a batch have no delay and no priority; send them one by one"
            raise ArgumentError(text, *DELAY_FIELDS, "priority")
        sharding_keys = {options.sharding_key or message.sharding_key for message in messages}
        if len(sharding_keys) != 1:
            raise ArgumentError(
                f"a batch is in one queue; this one has {len(sharding_keys)} sharding keys:"
                f" {sorted(sharding_keys)}; send them one by one",
                "sharding_key",
            )
        keyed = [self._with_unique_key(message) for message in messages]
        sending = self._batch(topics.pop(), encode_batch_body(keyed), options)
        self._order(sending, sharding_keys.pop())
        sending.msg_id = ",".join(message.properties[PROPERTY_UNIQUE_KEY] for message in keyed)
        return sending

    def fits_a_batch(self, message: Message) -> bool:
        """True if a broker takes this one together with others.

        Source: MessageBatch.generateFromList; tryToCompressMessage passes over batches.
        """
        return not (
            not message.is_for_a_batch
            or message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            or len(message.body) >= self.compressed_from_bytes
        )

    def entry(self, message: Message, options: SendOptions) -> tuple[str, bytes]:
        """Return the unique key of a message, and the message as a part of a batch body.

        Raises:
            ArgumentError: it cannot be sent as it is.
        """
        self._check_size(message.body)
        unique_key = self._keys.next_key(self._wall_clock_ms())
        properties = b""
        if (
            message.properties
            or message.keys
            or message.tags
            or message.sharding_key
            or (options.sharding_key)
        ):
            of_user = _property_map(message, options)
            of_user.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
            of_user.pop(PROPERTY_ACK, None)
            unique_key = of_user.pop(PROPERTY_UNIQUE_KEY, unique_key)
            properties = _encode_user_properties(of_user)
        properties += b"UNIQ_KEY\x01%b\x02" % unique_key.encode()
        return unique_key, encode_batch_entry(message.flag, message.body, properties)

    def next_keys(self, count: int) -> list[str]:
        """Return unique keys for as many messages."""
        return self._keys.next_keys(self._wall_clock_ms(), count)

    def gathered(self, topic: str, entries: Iterable[bytes], options: SendOptions) -> Sending:
        """Return messages of one lane as one request.

        `entries` are what `entry` made of them, or `keyed_entry_parts`.
        """
        sending = self._batch(topic, b"".join(entries), options)
        self._order(sending, options.sharding_key)
        return sending

    def ack_of(self, message: Message, options: SendOptions) -> Ack:
        """Return what the send of a message waits for."""
        default = self._settings.ack
        if message.properties.get(PROPERTY_ACK) == ACK_FLUSHED:
            default = Ack.REPLICATED_FLUSHED
        return chosen_ack(
            options.ack,
            wait=options.wait_store_msg_ok,
            message_wait=message.wait_store_msg_ok,
            default=default,
        )

    def _batch(self, topic: str, body: bytes, options: SendOptions) -> Sending:
        key = self._keys.next_key(self._wall_clock_ms())
        return self._sending(SEND_BATCH, topic, key, {}, None, body, 0, options)

    @staticmethod
    def _order(sending: Sending, sharding_key: str) -> None:
        if not sharding_key:
            return
        if sending.queue_id is not None:
            text = "a message has a queue_id or a sharding_key, not both"
            raise ArgumentError(text, "queue_id", "sharding_key")
        sending.sharding_hash = java_string_hash(sharding_key)

    def _compress(self, sending: Sending) -> None:
        compressed = compress(sending.body, self._settings.compression)
        if len(compressed) < len(sending.body):
            sending.body = compressed
            sending.sys_flag = COMPRESSED_FLAG | COMPRESSION_TYPES[self._settings.compression]

    def _with_unique_key(self, message: Message) -> Message:
        if PROPERTY_UNIQUE_KEY in message.properties:
            return message
        unique_key = self._keys.next_key(self._wall_clock_ms())
        return msgspec.structs.replace(
            message, properties={**message.properties, PROPERTY_UNIQUE_KEY: unique_key}
        )

    def _sending(
        self,
        code: int,
        topic: str,
        unique_key: str,
        user_properties: dict[str, str],
        message_wait: bool | None,  # noqa: FBT001  by position: this runs for every message
        body: bytes,
        flag: int,
        options: SendOptions,
    ) -> Sending:
        settings = self._settings
        self._check_size(body)
        default = settings.ack
        rest = ""
        if user_properties:
            user_properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
            if user_properties.pop(PROPERTY_ACK, "") == ACK_FLUSHED:
                default = Ack.REPLICATED_FLUSHED
            unique_key = user_properties.pop(PROPERTY_UNIQUE_KEY, unique_key)
            rest = _encode_user_properties(user_properties).decode()
        ack = chosen_ack(
            options.ack, wait=options.wait_store_msg_ok, message_wait=message_wait, default=default
        )
        return Sending(
            code,
            topic,
            unique_key,
            # RocketMQ's brokers append these properties of a batch to those of each message, where
            # the last one counts: every message would have the batch's key instead of its own.
            # Source: MessageExtEncoder.encode(MessageExtBatch, PutMessageContext).
            f"{ACK_PROPERTIES[ack]}{rest}"
            if code == SEND_BATCH
            else f"{ACK_PROPERTIES[ack]}{rest}{PROPERTY_UNIQUE_KEY}\x01{unique_key}\x02",
            body,
            flag,
            options.queue_id,
            self._clock() + self._send_seconds,
            self._tries,
        )

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._settings.max_message_size_bytes:
            raise ArgumentError(
                f"message body of {len(body)} bytes; the limit is"
                f" {self._settings.max_message_size_bytes} bytes (max_message_size_bytes of the"
                " producer, and a setting of the broker)",
                "body",
            )


def _property_map(message: Message, options: SendOptions) -> dict[str, str]:
    properties = message.property_map()
    if options.sharding_key:
        properties[PROPERTY_SHARDING_KEY] = options.sharding_key
    return properties


def _encode_user_properties(properties: dict[str, str]) -> bytes:
    encoded = encode_properties(properties)
    if len(encoded) > USER_PROPERTIES_BYTES_MAX:
        raise ArgumentError(
            f"message properties take {len(encoded)} bytes; the limit is"
            f" {USER_PROPERTIES_BYTES_MAX} bytes, since the producer and the broker add theirs",
            "properties",
        )
    return encoded


def parts_of(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Cut into runs that are bounded in number and bytes; at least one message each."""
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and (len(part) == MANY_MESSAGES_MAX or size + len(message.body) > MANY_BYTES_MAX):
            yield part
            part = []
            size = 0
        part.append(message)
        size += len(message.body)
    if part:
        yield part
