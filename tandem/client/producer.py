"""`Producer` for trio and asyncio. The rules are those of `BlockingProducer`, too (send_flow).

    async with Producer(name_servers, group="orders") as producer:
        result = await producer.send(Message("orders", b"hello"))
        if result.status is not SendStatus.SEND_OK:
            ...     # a classic group: in the master's log, flush or replication unknown

What a send can end with:

    SendResult, SEND_OK          as safe as the contract says that was chosen (see `Ack`)
    SendResult, other status     FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE, of a
                                 classic group: was in the master's log, the rest unknown; `reason`
                                 says more. Not failed: do not send it again unless twice is better
                                 than perhaps not at all. With `resend_until_ok` the producer does.
    SendInDoubtError             the same answer of a fenced group, after it was sent again for as
                                 long as the time allows: perhaps stored, perhaps several times
    BrokerError                  refused, not stored
    RouteNotFoundError           never left: no broker takes sends of this topic now
    ConnectionLostError          `outcome_unknown` says whether it may have been stored
    SendTimeoutError             likewise
    ArgumentError                the message itself cannot be sent (too large, bad property)

A send outlives a change of master: it is tried again until `send_msg_timeout_ms` is over (12 s; a
switch takes up to 8 s). So a message whose first try got no answer can be stored twice; both copies
carry the same UNIQ_KEY, and `DuplicateFilter` tells them apart. With
`retry_times_when_send_failed=0` every send is exactly one request.

Many tasks that send at the same time share requests: see `tandem.client.accumulator`.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self

from tandem.client.accumulator import BATCH_MAX_BYTES
from tandem.client.ack import Ack, chosen_ack
from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.auto_batch import AutoBatch
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.event_loop import LoopClock
from tandem.client.faces import AsyncFace
from tandem.client.hooks import SendHooks, SendMessageHook
from tandem.client.identity import wall_clock_ms
from tandem.client.in_flight import MAX_IN_FLIGHT_BYTES
from tandem.client.request_reply import REQUEST_TIMEOUT_MS, Requests
from tandem.client.results import SendResult
from tandem.client.send_flow import Sender
from tandem.client.send_operations import SendOperations, Sends
from tandem.client.sending import (
    MESSAGE_BYTES_MAX,
    NO_OPTIONS,
    SendOptions,
    SendSettings,
)
from tandem.client.trace_tasks import TraceTasks
from tandem.client.transaction import Transaction, TransactionCheck, Transactions
from tandem.client.transaction_flow import TransactionFlows
from tandem.wire.compression import Codec, checked_codec
from tandem.wire.message import Message, MessageExt


class Producer(AsyncFace, SendOperations):
    """Sends messages; any number of tasks may share one.

    All requests to a broker share one connection, which is opened when it is needed and again after
    it was lost. Heartbeats go out every 30 s. Leaving the `async with` block closes everything;
    sends still under way then end with `ConnectionLostError`.

    Args:
        cluster: the name servers, "host:port", all of them; or a `ClusterAccess`.
        group: the producer group.
        wait_store_msg_ok: RocketMQ's word for the first two contracts: False is `Ack.ASYNC`, True
            `Ack.REPLICATED`. A message or a send may say otherwise (the WAIT property).
        ack: the contract of this producer's sends, instead of `wait_store_msg_ok`.
        retry_times_when_send_failed: most further tries; None: as many as fit into the time.
        send_msg_timeout_ms: for all tries of a send together, connecting included.
        attempt_timeout_ms: for one try. More than the broker may wait by itself for other nodes and
            its disk (`slave_timeout_ms`, `sync_flush_timeout_ms`), or a slow answer is not awaited
            and the message is stored twice; less than half of `send_msg_timeout_ms`, or a frozen
            master uses up all of it.
        resend_until_ok: whether to send again what was stored but is not known to be safe, until
            SEND_OK or until the time is over. It may be stored several times, with one unique key.
            None: in fenced groups, where a switch may take it away, and what stays in doubt raises
            `SendInDoubtError`. False: nowhere, and it is a result with its status.
        max_message_size_bytes: larger bodies are refused here.
        batch_max_bytes: how large a batch may become that is made of the sends of several tasks; 0:
            every send is a request of its own. A send without others beside it never waits.
        max_in_flight_bytes: bodies under way, all sends together; `send` waits for room.
        compress_over_bytes: bodies of at least this size are compressed, if that makes them
            smaller; None: none is. RocketMQ's producers compress from 4,096 on.
        compression: how. "lz4" and "zstd" need `pip install 'tandem-mq[compression]'`; only Java's
            clients and this one read them.
        transaction_check: says what became of a local transaction that this producer knows nothing
            of, because the one that began it has ended. It gets the message and returns "commit",
            "rollback", or "unknown" (then the broker asks again later).
        trace: whether RocketMQ's message trace is written: of each send a record in
            `RMQ_SYS_TRACE_TOPIC`, or in the topic of this name.
        hooks: what else is called around sends, see `tandem.client.hooks`.
        open_stream: opens connections; tests put another network here.
        wall_clock_ms: the time in messages and ids.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        wait_store_msg_ok: bool = True,
        ack: Ack | None = None,
        retry_times_when_send_failed: int | None = None,
        send_msg_timeout_ms: int = 12_000,
        attempt_timeout_ms: int = 4_000,
        resend_until_ok: bool | None = None,
        max_message_size_bytes: int = MESSAGE_BYTES_MAX,
        batch_max_bytes: int = BATCH_MAX_BYTES,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
        compress_over_bytes: int | None = None,
        compression: Codec = "zlib",
        transaction_check: TransactionCheck | None = None,
        trace: bool | str = False,
        hooks: Sequence[SendMessageHook] = (),
        open_stream: StreamOpener | None = None,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        core = ClusterAccess.of(cluster).core(LoopClock(), producer_group=group)
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
        shell = AsyncShell(core, open_stream)
        self._traces = TraceTasks(shell, core, group, trace, wall_clock_ms)
        self._hooks = SendHooks(group, (*hooks, *self._traces.hooks))
        self._has_hooks = bool(self._hooks)  # asked for every message
        super().__init__(shell, Sends(self._sender, self._hooks))
        self._auto_batch = AutoBatch(
            self._shell, self._sender, batch_max_bytes, max_in_flight_bytes
        )
        flows = TransactionFlows(core, self._sender, group, send_msg_timeout_ms / 1000)
        self._requests = Requests(self._shell, core, self._sender, wall_clock_ms)
        self._transactions = Transactions(self._shell, core, flows, transaction_check, self._hooks)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._transactions.open()
        self._traces.open()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._auto_batch.close()
        try:
            await self._traces.close(error_type)
        finally:
            await super().__aexit__(error_type)

    def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        wait_store_msg_ok: bool | None = None,
        ack: Ack | None = None,
        sharding_key: str = "",
    ) -> Coroutine[Any, Any, SendResult]:
        """Send one message to the queue whose turn it is, or to the one numbered `queue_id`.

        With a `sharding_key` the key chooses the queue. All messages of a key are in one queue as
        long as the number of queues is the same, in the order in which they were given to this
        producer, and none is tried at another queue.

        If this is cancelled and the request has not left yet, it never will; otherwise the message
        may be stored.

        Raises:
            ClientError: see the module's table.
            ArgumentError: the message cannot be sent as it is.
        """
        options = NO_OPTIONS
        if sharding_key or queue_id is not None or wait_store_msg_ok is not None or ack is not None:
            options = SendOptions(queue_id, wait_store_msg_ok, ack, sharding_key)
        if self._has_hooks:
            return self._send_between_hooks(message, options)
        return self._auto_batch.send(message, options)

    async def _send_between_hooks(self, message: Message, options: SendOptions) -> SendResult:
        [message], ended = self._hooks.sending([message])
        try:
            result = await self._auto_batch.send(message, options)
        except BaseException as error:
            ended([error])
            raise
        ended([result])
        return result

    def transaction(
        self, message: Message, *, queue_id: int | None = None, ack: Ack | None = None
    ) -> Transaction:
        """Return a block whose message is seen by consumers if the block ends well.

            async with producer.transaction(Message("orders", b"...")) as transaction:
                await database.commit(...)

        Entering sends the message so that nobody sees it. Leaving normally commits it, leaving with
        an exception rolls it back and raises the exception; `transaction.commit()`, `rollback()`
        and `unknown()` say otherwise. Leaving waits until the broker has confirmed the end, at most
        `send_msg_timeout_ms`; after that the broker asks, and this producer answers as long as it
        lives. After it, other producers of the group are asked: see `transaction_check`.

        Raises:
            ClientError: on entering: nothing has begun. On leaving, BrokerError only: the broker
                knows of no such transaction, because it has given it up.
            ArgumentError: the message cannot be sent as it is, or is delayed.
        """
        return Transaction(self._transactions, message, queue_id, ack)

    async def request(
        self,
        message: Message,
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        queue_id: int | None = None,
        sharding_key: str = "",
    ) -> MessageExt:
        """Send a message and return what its consumer replies.

        Raises:
            ReplyTimeoutError: no reply within this time, which counts from the call. The message
                may have been consumed.
            ClientError: it could not be sent; see the module's table.
            ArgumentError: the message cannot be sent as it is.
        """
        options = SendOptions(queue_id, sharding_key=sharding_key)
        return await self._requests.request(message, timeout_ms, options)

    async def reply(
        self, request: MessageExt, body: bytes, *, properties: dict[str, str] | None = None
    ) -> None:
        """Answer a message that was sent by `request`; returns when the requester has it.

        Raises:
            BrokerError: the requester is not there any more, or does not take it.
            ClientError: it could not be sent before the requester's time was over.
            ArgumentError: nobody waits for a reply to this message.
        """
        await self._requests.reply(request, body, properties or {})
