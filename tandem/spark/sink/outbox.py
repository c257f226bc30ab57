"""Requests to brokers: many under way, bounded in bytes, in the order of their lanes.

    put ---> room? ---> of a lane whose request is under way? ---> wait for its turn
                                   |
                                   no ---> one request, with all its tries ---> room for others

What became of a request is judged here. A task of Spark is good if every message got SEND_OK; the
first that did not ends it, and Spark tries the task again.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final

import anyio

from tandem.client.errors import BrokerError, ClientError, SendInDoubtError
from tandem.client.identity import wall_clock_ms
from tandem.client.results import SendResult, SendStatus
from tandem.client.send_flow import NO_BATCHES, Sender
from tandem.client.sending import SendSettings
from tandem.spark.sink.errors import SendFailedError, Stored
from tandem.spark.sink.kept import SinkClient
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.packed_rows import PackedParcel
from tandem.spark.sink.packer import Packer, Parcel, unpacked

REQUESTS_MAX: Final = 128
"""Under way at a time, so that small requests, too, are bounded."""


GRACE_SECONDS: Final = 1.0
"""A request ends by itself when its time is over, and says more than we could."""


class Outbox:
    """Sends parcels of one task over a client that is open. `where` names the task in errors.

    `messages` counts what was answered with SEND_OK, and `body_bytes` the bytes of their bodies;
    `topics` are where they went.
    """

    def __init__(self, options: SinkOptions, where: str, client: SinkClient) -> None:
        self._core = client.core
        self._shell = client.shell
        settings = SendSettings(
            options.group,
            options.ack,
            None,
            options.send_ms,
            options.attempt_ms,
            True,  # noqa: FBT003  resend_until_ok
            options.message_max_bytes,
            options.compress_over_bytes,
            options.compression,
        )
        self._options = options
        self._where = where
        self._sender = Sender(self._core, settings, wall_clock_ms)
        self._queues: dict[str, int] = {}
        self._lanes: dict[Hashable, deque[Parcel]] = {}
        self._bytes = 0
        self._requests = 0
        self._ended = anyio.Event()
        self._failure: SendFailedError | None = None
        self.packer = Packer(
            self._sender.sendings, options.batch_max_bytes, lambda topic: self._queues[topic]
        )
        self.messages = 0
        self.body_bytes = 0
        self.topics: set[str] = set()

    async def know(self, topics: Iterable[str]) -> None:
        """Learn how many queues these topics have: the packer asks for those with sharding keys.

        Raises:
            SendFailedError: a topic has no route.
        """
        for topic in topics:
            if topic in self._queues:
                continue
            deadline = self._core.clock() + self._options.send_ms / 1000
            try:
                route = await self._shell.run(self._core.route(topic, deadline, for_sends=True))
            except ClientError as error:
                raise self._failed(str(error), Stored.NOTHING) from error
            self._queues[topic] = route.writable_queues_count

    async def put(self, parcel: Parcel | PackedParcel) -> None:
        """Send a parcel as soon as there is room for it.

        Raises:
            SendFailedError: one that was put before could not be stored as asked for.
        """
        while self._failure is None and not self._has_room(parcel.size):
            await self._ended.wait()
        self._check()
        self.topics.add(parcel.topic)
        self._bytes += parcel.size
        self._requests += 1
        if isinstance(parcel, PackedParcel) or parcel.lane is None:
            self._shell.tasks.start_soon(self._send, parcel)
            return
        waiting = self._lanes.get(parcel.lane)
        if waiting is not None:
            waiting.append(parcel)
            return
        self._lanes[parcel.lane] = deque([parcel])
        self._shell.tasks.start_soon(self._send_lane, parcel.lane)

    async def finish(self) -> None:
        """Wait until everything is stored.

        Raises:
            SendFailedError: something is not.
        """
        while self._failure is None and self._requests:
            await self._ended.wait()
        self._check()

    def _has_room(self, size: int) -> bool:
        if not self._requests:
            return True
        is_much = self._bytes + size > self._options.in_flight_max_bytes
        return not is_much and self._requests < REQUESTS_MAX

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _send_lane(self, lane: Hashable) -> None:
        waiting = self._lanes[lane]
        while waiting and self._failure is None:
            await self._send(waiting.popleft())
        del self._lanes[lane]

    async def _send(self, parcel: Parcel | PackedParcel) -> None:
        outcomes: list[tuple[SendResult | ClientError, int, int]] = []
        # A broker that takes no batch, or no such large one, gets the messages one by one: all of
        # them together have this time.
        with anyio.move_on_after(self._options.send_ms / 1000 + GRACE_SECONDS):
            outcomes = await self._outcomes(parcel)
        if not outcomes and self._failure is None:
            self._failure = self._failed(self._too_slow(parcel.topic), Stored.UNKNOWN)
        for outcome, messages, body_bytes in outcomes:
            if isinstance(outcome, SendResult) and outcome.status is SendStatus.SEND_OK:
                self.messages += messages
                self.body_bytes += body_bytes
            elif self._failure is None:
                self._failure = self._failed(self._words(parcel.topic, outcome), _stored(outcome))
        self._bytes -= parcel.size
        self._requests -= 1
        self._ended.set()
        self._ended = anyio.Event()

    async def _outcomes(
        self, parcel: Parcel | PackedParcel
    ) -> list[tuple[SendResult | ClientError, int, int]]:
        """Send a parcel; return outcomes, each with its messages and bytes of their bodies."""
        if isinstance(parcel, PackedParcel):
            if parcel.count > 1:
                send = self._sender.send_packed(parcel.topic, parcel.data)
                outcome = await self._shell.run(send)
                if not isinstance(outcome, BrokerError) or outcome.code not in NO_BATCHES:
                    return [(outcome, parcel.count, parcel.body_bytes)]
            found: list[tuple[SendResult | ClientError, int, int]] = []
            for alone in unpacked(parcel):
                found += await self._outcomes(alone)
            return found
        results = await self._shell.run(
            self._sender.send_gathered(parcel.topic, parcel.gathered, parcel.options)
        )
        return [
            (result, 1, len(each.message.body))
            for each, result in zip(parcel.gathered, results, strict=True)
        ]

    def _words(self, topic: str, outcome: SendResult | ClientError) -> str:
        seconds = self._options.send_ms / 1000
        if isinstance(outcome, SendInDoubtError):
            outcome = outcome.result
        if isinstance(outcome, SendResult):
            return (
                f"topic {topic!r}: for {seconds:g} s {outcome.queue.broker_name} has answered"
                f" {outcome.status.name}{_because(outcome.reason)}: messages are in the log of its"
                f" master, but not as safe as ack={self._options.ack.value} asks for. Look at its"
                " other nodes (`tandem ha status`), or give it more time by sendMsgTimeoutMs"
            )
        stored = (
            "messages may be stored all the same" if outcome.outcome_unknown else "nothing stored"
        )
        return f"topic {topic!r}: {outcome} ({stored}; tried within sendMsgTimeoutMs={seconds:g} s)"

    def _too_slow(self, topic: str) -> str:
        return (
            f"topic {topic!r}: messages were not stored within"
            f" sendMsgTimeoutMs={self._options.send_ms}; some may be. If the broker takes only"
            " small batches, a smaller batchMaxBytes is much faster"
        )

    def _failed(self, what: str, stored: Stored) -> SendFailedError:
        return SendFailedError(f"{self._where}: {what}", stored)


def _stored(outcome: SendResult | ClientError) -> Stored:
    if isinstance(outcome, SendResult | SendInDoubtError):
        return Stored.UNSAFE
    return Stored.UNKNOWN if outcome.outcome_unknown else Stored.NOTHING


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
