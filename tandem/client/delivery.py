"""One message in the hands of the user of a `Consumer`, and what the group learns of it.

concurrent, clustering    retry gives it back to the broker; if none takes it, again here
ordered                   retry hands it out again here, after a pause: nothing overtakes it
broadcasting              the same: there is no group to give it back to
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio

from tandem.client.errors import ClientError
from tandem.client.group_flow import NO_MORE_TRIES, delay_level
from tandem.client.group_reader import GroupReader
from tandem.client.hooks import ConsumeHooks, ConsumeOutcome
from tandem.client.queue_reader import QueueReader
from tandem.client.received_message import ReceivedMessage
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_RETRY_TOPIC

logger = logging.getLogger(__name__)

AGAIN_HERE_SECONDS: Final = 5.0
"""When no broker takes a message back (RocketMQ's submitConsumeRequestLater)."""

SUSPEND_SECONDS: Final = 1.0
"""How long an ordered queue waits by default (RocketMQ's suspendCurrentQueueTimeMillis)."""


class GroupDelivery:
    """See `tandem.client.received_message.Delivery`."""

    __slots__ = ("_consumptions", "_group", "_is_settled", "_reader", "_stored", "message")

    def __init__(
        self,
        group: GroupReader,
        reader: QueueReader,
        stored: MessageExt,
        *,
        hooks: ConsumeHooks,
    ) -> None:
        self._group = group
        self._reader = reader
        self._stored = stored
        self._is_settled = False
        reader.in_hand_count += 1
        self.message = ReceivedMessage(
            stored.properties.get(PROPERTY_RETRY_TOPIC, stored.topic),
            stored.body,
            stored.properties,
            stored.queue_id,
            stored.queue_offset,
            stored.physical_offset,
            stored.store_size,
            stored.flag,
            stored.sys_flag,
            stored.born_timestamp_ms,
            stored.born_host,
            stored.store_timestamp_ms,
            stored.store_host,
            stored.reconsume_times + reader.tries_here(stored.queue_offset),
            stored.prepared_transaction_offset,
            stored.body_crc,
            self,
        )
        self._consumptions = hooks.consuming(self.message)

    def handling(self) -> AbstractContextManager[object]:
        """See `tandem.client.received_message.Delivery`."""
        return nullcontext() if self._consumptions is None else self._consumptions.handling()

    @property
    def is_lost(self) -> bool:
        """See `tandem.client.received_message.Delivery`."""
        return self._reader.process_queue.is_dropped

    def put_back(self) -> None:
        """See `tandem.client.received_message.Delivery`."""
        if not self._is_settled:
            self._settle(ConsumeOutcome.PUT_BACK)
            self._group.put_back(self._reader, self._stored)

    def done(self) -> None:
        """See `ReceivedMessage.done`."""
        if not self._is_settled:
            self._settle(ConsumeOutcome.DONE)
            self._reader.finished(self._stored.queue_offset)

    async def retry(self, delay_seconds: float | None) -> None:
        """See `ReceivedMessage.retry`."""
        if self._is_settled:
            return
        self._settle(ConsumeOutcome.RETRY)
        settings = self._group.settings
        if settings.orderly and self._is_last_try():
            await self._send_back_or_again(NO_MORE_TRIES)
        elif settings.orderly or settings.is_broadcasting:
            self._again_after(SUSPEND_SECONDS if delay_seconds is None else delay_seconds)
        else:
            await self._send_back_or_again(delay_level(delay_seconds))

    def _settle(self, outcome: ConsumeOutcome) -> None:
        self._is_settled = True
        self._reader.in_hand_count -= 1
        if self._consumptions is not None:
            self._consumptions.ended(outcome)

    def _is_last_try(self) -> bool:
        most = self._group.settings.max_reconsume_times
        return most is not None and self.message.reconsume_times >= most

    async def dead_letter(self) -> None:
        """See `ReceivedMessage.dead_letter`."""
        if not self._is_settled:
            await self._send_back(NO_MORE_TRIES)
            if not self._is_settled:
                self._settle(ConsumeOutcome.DEAD_LETTER)
                self._reader.finished(self._stored.queue_offset)

    async def _send_back_or_again(self, level: int) -> None:
        try:
            await self._send_back(level)
        except ClientError as error:
            logger.warning(
                "message %s could not be given back to group %s and is handled again here in"
                " %g s: %s",
                self.message.msg_id,
                self._group.settings.group,
                AGAIN_HERE_SECONDS,
                error,
            )
            self._again_after(AGAIN_HERE_SECONDS)
        except anyio.get_cancelled_exc_class():
            # Whether a broker has it is not known. Left as it is, it would hold up its queue's
            # offset, and the whole queue of an ordered consumer.
            if not self.is_lost:
                self._again_after(AGAIN_HERE_SECONDS)
            raise
        else:
            self._reader.finished(self._stored.queue_offset)

    async def _send_back(self, level: int) -> None:
        group = self._group
        await group.shell.run(group.member.send_back(self._reader.queue, self._stored, level))

    def _again_after(self, seconds: float) -> None:
        self._group.shell.tasks.start_soon(self._again, seconds)

    async def _again(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._reader.again(self._stored)
