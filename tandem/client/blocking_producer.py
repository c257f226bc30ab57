"""`BlockingProducer`: what `tandem.client.producer` does, for plain code. One set of rules."""

import time
from collections.abc import Callable, Sequence

from tandem.client.ack import Ack, chosen_ack
from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.faces import BlockingFace, operation
from tandem.client.hooks import SendHooks, SendMessageHook
from tandem.client.identity import wall_clock_ms
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.send_flow import Sender
from tandem.client.send_operations import SendOperations, Sends
from tandem.client.sending import MESSAGE_BYTES_MAX, SendSettings
from tandem.client.tracing import TraceSender, trace_topic
from tandem.wire.compression import Codec, checked_codec


class BlockingProducer(BlockingFace, SendOperations):
    """A producer for plain code: no event loop, one socket per broker, one send at a time.

    Use it as a context manager, from one thread. Arguments as for `Producer`. A send waits for its
    answer, so nothing is gathered: `send_many` and `send_batch` are the fast ways here.
    """

    send = operation(Sends.send)

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
        compress_over_bytes: int | None = None,
        compression: Codec = "zlib",
        trace: bool | str = False,
        hooks: Sequence[SendMessageHook] = (),
        opener: SocketOpener = open_socket,
        wall_clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        core = ClusterAccess.of(cluster).core(time.monotonic, producer_group=group)
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
        sender = Sender(core, settings, wall_clock_ms)
        topic = trace_topic(trace)
        traces = None if topic is None else TraceSender(core, group, topic, wall_clock_ms)
        all_hooks = SendHooks(group, hooks if traces is None else (*hooks, traces.tracer))
        super().__init__(BlockingShell(core, opener), Sends(sender, all_hooks, traces))
        self._traces = traces

    def __exit__(self, *error: object) -> None:
        try:
            if self._traces is not None and (error[0] is None or isinstance(error[1], Exception)):
                self._shell.run(self._traces.flush())
        finally:
            super().__exit__(*error)
