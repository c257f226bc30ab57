"""`BlockingProducer`: what `tandem.client.producer` does, for plain code. One set of rules."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from tandem.client.ack import Ack, chosen_ack
from tandem.client.blocking_shell import BlockingShell, SocketOpener, open_socket
from tandem.client.core import ClientCore, parse_addresses
from tandem.client.credentials import Credentials
from tandem.client.errors import ClientError
from tandem.client.identity import ClientIdentity, local_identity, wall_clock_ms
from tandem.client.results import SendResult
from tandem.client.send_flow import Sender
from tandem.client.sending import MESSAGE_BYTES_MAX, SendOptions, SendSettings
from tandem.wire.compression import Codec, checked_codec
from tandem.wire.message import Message


class BlockingProducer:
    """A producer for plain code: no event loop, one socket per broker, one send at a time.

    Use it as a context manager, from one thread. Arguments as for `Producer`. A send waits for its
    answer, so nothing is gathered: `send_many` and `send_batch` are the fast ways here.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        group: str,
        *,
        wait_store_msg_ok: bool = True,
        ack: Ack | None = None,
        retry_times_when_send_failed: int | None = None,
        send_msg_timeout_ms: int = 12_000,
        attempt_timeout_ms: int = 4_000,
        resend_until_ok: bool | None = None,
        max_message_size_bytes: int = MESSAGE_BYTES_MAX,
        compress_over_bytes: int | None = None,
        compression: Codec = "zlib",
        opener: SocketOpener = open_socket,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
        identity: ClientIdentity | None = None,
        access_key: str = "",
        secret_key: str = "",
    ) -> None:
        core = ClientCore(
            name_servers,
            identity=identity or local_identity(parse_addresses(name_servers)[0]),
            clock=time.monotonic,
            producer_group=group,
            credentials=Credentials.of(access_key, secret_key),
        )
        settings = SendSettings(
            group,
            chosen_ack(ack, wait=wait_store_msg_ok, message_wait=None, default=Ack.REPLICATED),
            retry_times_when_send_failed,
            send_msg_timeout_ms,
            attempt_timeout_ms,
            resend_until_ok,
            max_message_size_bytes,
            compress_over_bytes,
            checked_codec(compression),
        )
        self._sender = Sender(core, settings, wall_clock_ms)
        self._shell = BlockingShell(core, opener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()

    def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
        sharding_key: str = "",
    ) -> SendResult:
        """See `Producer.send`."""
        options = SendOptions(queue_id, wait_store_msg_ok, ack, sharding_key)
        return self._shell.run(self._sender.send(message, options))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
    ) -> SendResult:
        """See `Producer.send_batch`."""
        return self._shell.run(
            self._sender.send_batch(messages, SendOptions(queue_id, wait_store_msg_ok, ack))
        )

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
    ) -> list[SendResult | ClientError]:
        """See `Producer.send_many`; here up to 128 are in flight."""
        return self._shell.run(
            self._sender.send_many(messages, SendOptions(queue_id, wait_store_msg_ok, ack))
        )
