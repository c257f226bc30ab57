"""Sends of many tasks, gathered into batches by the rules of `tandem.client.accumulator`.

A send that goes at once runs in its caller's task. Gathered messages are sent by a task of the
client, one for each request under way, which ends when nothing is left.

    send ---> room? ---> Lane.enter: yes ---> one request, alone
                              |
                              no ---> gathered ---> (a request ends) ---> one batch ---> wake all
"""

import anyio.lowlevel

from tandem.client.accumulator import Gathered, Lane, Lanes, end_all
from tandem.client.async_shell import AsyncShell
from tandem.client.errors import ClientError, ConnectionCause, ConnectionLostError
from tandem.client.in_flight import InFlight
from tandem.client.results import SendResult
from tandem.client.send_flow import Sender
from tandem.client.sending import BARE_ENTRY_BYTES, NO_OPTIONS, SendOptions
from tandem.wire.message import Message


class AutoBatch:
    """Sends single messages for one producer.

    With a `batch_max_bytes` of 0 each is a request of its own.
    """

    def __init__(
        self, shell: AsyncShell, sender: Sender, batch_max_bytes: int, max_in_flight_bytes: int
    ) -> None:
        self._shell = shell
        self._sender = sender
        self._batch_max_bytes = min(batch_max_bytes, sender.sendings.body_bytes_max)
        self._alone_from_bytes = min(self._batch_max_bytes, sender.sendings.compressed_from_bytes)
        self._in_flight = InFlight(max_in_flight_bytes)
        self._lanes = Lanes()
        self._is_closed = False

    async def send(self, message: Message, options: SendOptions) -> SendResult:
        """Send a message as soon as there is room for it; see `Producer.send`.

        Raises:
            ClientError: see `Producer`.
            ArgumentError: the message cannot be sent as it is.
            TypeError: it is no message.
        """
        try:
            size = len(message.body)
        except AttributeError:
            raise TypeError(f"send takes a Message, not {type(message).__name__}") from None
        if not self._in_flight.enter(size):
            await self._wait_for_room(size)
        try:
            is_plain = options is NO_OPTIONS and message.is_plain
            lane = None
            if is_plain and size < self._alone_from_bytes:
                # By far the most are so: a lane of a topic is there, so it is one that has batches.
                lane = self._lanes.find(message.topic)
            if lane is None:
                lane = self._lane(message, options)
                if lane is None:
                    return await self._send_alone(message, options)
            if lane.enter():
                return await self._send_at_once(lane, message)
            gathered = self._gather(lane, message, is_plain=is_plain)
            parked = self._shell.park()
            gathered.wake = parked.wake
            outcome: SendResult | ClientError = await parked.wait(gathered.withdraw)
        finally:
            self._in_flight.leave(size)
        if isinstance(outcome, SendResult):
            return outcome
        raise outcome

    async def _wait_for_room(self, size: int) -> None:
        parked = self._shell.park()
        wake = parked.wake
        self._in_flight.wait_in_line(size, wake)
        await parked.wait(lambda: self._in_flight.withdraw(size, wake))

    def _lane(self, message: Message, options: SendOptions) -> Lane | None:
        """Return where a message waits for others like it, None if it goes alone."""
        if not self._alone_from_bytes:
            return None
        sharding_key = options.sharding_key or message.sharding_key
        if not message.is_for_a_batch or not (sharding_key or self._fits(message)):
            return None
        if not sharding_key and options is NO_OPTIONS and message.is_plain:
            return self._lanes.lane(message.topic, options)
        ack = self._sender.sendings.ack_of(message, options)
        alike = SendOptions(options.queue_id, None, ack, sharding_key)
        return self._lanes.lane((message.topic, alike), alike, is_ordered=bool(sharding_key))

    def _fits(self, message: Message) -> bool:
        return len(message.body) < self._alone_from_bytes and self._sender.sendings.fits_a_batch(
            message
        )

    async def _send_at_once(self, lane: Lane, message: Message) -> SendResult:
        try:
            return await self._send_alone(message, lane.options)
        finally:
            self._go_on(lane)

    async def _send_alone(self, message: Message, options: SendOptions) -> SendResult:
        """Do what `Sender.send` does; nearly always one call, which then needs no flow."""
        sender = self._sender
        sending = sender.sendings.one(message, options)
        call = sender.first_call(sending)
        if call is not None:
            result = sender.take_first(sending, await self._shell.call(call))
            if result is not None:
                return result
        return await self._shell.run(sender.go_on(sending))

    def _go_on(self, lane: Lane) -> None:
        """A request of one message has ended: the next one may go."""
        lane.answered(1)
        if lane.leave():
            self._lanes.drop_if_idle(lane)
        elif not self._is_closed:
            self._shell.tasks.start_soon(self._send_gathered, lane)

    def _gather(self, lane: Lane, message: Message, *, is_plain: bool) -> Gathered:
        if self._is_closed:
            raise _closed(outcome_unknown=False)
        if is_plain and not message.keys and not message.tags:
            gathered = Gathered(lane, message, "", b"", BARE_ENTRY_BYTES + len(message.body))
        else:
            unique_key, entry = self._sender.sendings.entry(message, lane.options)
            if lane.is_ordered and not self._fits(message):
                entry = b""
            gathered = Gathered(lane, message, unique_key, entry, len(entry))
        lane.gather(gathered)
        return gathered

    async def _send_gathered(self, lane: Lane) -> None:
        """Send what is gathered, and what comes meanwhile."""
        under_way: list[Gathered] = []
        try:
            while under_way := lane.take(self._batch_max_bytes):
                topic = under_way[0].message.topic
                outcomes = await self._shell.run(
                    self._sender.send_gathered(topic, under_way, lane.options)
                )
                end_all(under_way, outcomes)
                count, under_way = len(under_way), []
                # Woken callers send their next messages, before this looks for more.
                await anyio.lowlevel.checkpoint()
                lane.answered(count)
            lane.leave()
            self._lanes.drop_if_idle(lane)
        finally:
            # Only when the client is being closed.
            _abandon(under_way, outcome_unknown=True)

    def close(self) -> None:
        """No more is sent; a message that waits for company fails."""
        self._is_closed = True
        for lane in self._lanes.all():
            while gathered := lane.take(self._batch_max_bytes):
                _abandon(gathered, outcome_unknown=False)


def _abandon(gathered: list[Gathered], *, outcome_unknown: bool) -> None:
    end_all(gathered, [_closed(outcome_unknown=outcome_unknown) for _ in gathered])


def _closed(*, outcome_unknown: bool) -> ConnectionLostError:
    cause, reason = ConnectionCause.CLOSED, "the client was closed"
    return ConnectionLostError("any", cause, reason, outcome_unknown=outcome_unknown)
