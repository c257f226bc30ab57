"""Messages to requests: which go together, and which wait for which. Pure.

    without a sharding key   messages of one topic and queue share a batch of `batch_max_bytes`
    with one                 messages whose keys have the same queue share a batch; the batches of
                             a queue go one after the other, so each key stays in order
    cannot be in a batch     delayed, compressed, too large: a request of its own

A batch that is full goes; the rest goes at the end, or when much is gathered.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from tandem.client.accumulator import Gathered, Lane
from tandem.client.sending import NO_OPTIONS, Sendings, SendOptions
from tandem.spark.sink.packed_rows import PackedParcel
from tandem.wire.batch_body import decode_batch_body
from tandem.wire.message import Message
from tandem.wire.message_properties import (
    PROPERTY_UNIQUE_KEY,
    decode_properties,
    java_string_hash,
)

GATHERED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Over all batches that are not full yet: a row may have any of thousands of topics."""

LONE_BYTES: Final = 256
"""What a request costs beside its body, in memory."""

_NO_LANE: Final = Lane(None, NO_OPTIONS, 1)
"""These messages wait in no lane of the client: a `Gathered` has to have one."""


class Parcel:
    """Messages of one request. Those of one `lane` go one after the other; None: at any time."""

    __slots__ = ("gathered", "lane", "options", "size", "topic")

    def __init__(self, topic: str, options: SendOptions, lane: Hashable = None) -> None:
        self.topic = topic
        self.options = options
        self.lane = lane
        self.gathered: list[Gathered] = []
        self.size = 0
        """In bytes, about."""


class Packer:
    """Packs the messages of one task.

    `queues_of` says how many queues of a topic a sharding key may have.
    """

    def __init__(
        self, sendings: Sendings, batch_max_bytes: int, queues_of: Callable[[str], int]
    ) -> None:
        self._sendings = sendings
        self._batch_max_bytes = batch_max_bytes
        self._queues_of = queues_of
        self._open: dict[Hashable, Parcel] = {}
        self._bytes = 0

    def add(
        self, messages: Sequence[Message], queue_ids: Sequence[int | None] | None = None
    ) -> Iterator[Parcel]:
        """Yield the parcels that are ready with these messages.

        Raises:
            UnfitError: one of them cannot be sent as it is. Those before it may be on their way.
        """
        for index, message in enumerate(messages):
            queue_id = queue_ids[index] if queue_ids is not None else None
            try:
                unique_key, entry = self._sendings.entry(message, NO_OPTIONS)
            except ValueError as error:
                raise UnfitError(index, str(error)) from error
            gathered = Gathered(_NO_LANE, message, unique_key, entry)
            yield from self._pack(gathered, queue_id)

    def rest(self) -> Iterator[Parcel]:
        """Yield what is not full."""
        parcels, self._open, self._bytes = self._open, {}, 0
        yield from parcels.values()

    def _pack(self, gathered: Gathered, queue_id: int | None) -> Iterator[Parcel]:
        message = gathered.message
        size = len(gathered.entry)
        key, is_ordered = self._key(message, queue_id)
        fits = self._sendings.fits_a_batch(message) and size < self._batch_max_bytes
        parcel = self._open.get(key)
        if parcel is not None and (
            parcel.size + size > self._batch_max_bytes if fits else is_ordered
        ):
            yield self._close(key)
            parcel = None
        if parcel is None:
            options = NO_OPTIONS
            if message.sharding_key or queue_id is not None:
                options = SendOptions(queue_id, sharding_key=message.sharding_key)
            parcel = Parcel(message.topic, options, key if is_ordered else None)
        elif not fits:
            # Those that are gathered go on waiting: this one has no place among them.
            parcel = Parcel(message.topic, parcel.options)
        parcel.gathered.append(gathered)
        if not fits:
            gathered.entry = b""
            parcel.size = size + LONE_BYTES
            yield parcel
            return
        parcel.size += size
        self._open[key] = parcel
        self._bytes += size
        if self._bytes > GATHERED_BYTES_MAX:
            yield from self.rest()

    def _close(self, key: Hashable) -> Parcel:
        parcel = self._open.pop(key)
        self._bytes -= parcel.size
        return parcel

    def _key(self, message: Message, queue_id: int | None) -> tuple[Hashable, bool]:
        if not message.sharding_key:
            return (message.topic, queue_id), False
        place = abs(java_string_hash(message.sharding_key)) % self._queues_of(message.topic)
        return (message.topic, "place", place), True


def unpacked(parcel: PackedParcel) -> Iterator[Parcel]:
    """Yield the messages of a parcel, each in one of its own: a broker takes no batch of them."""
    for entry in decode_batch_body(parcel.data):
        alone = Parcel(parcel.topic, NO_OPTIONS)
        properties = decode_properties(entry.properties)
        message = Message(parcel.topic, entry.body, flag=entry.flag, properties=properties)
        key = properties.get(PROPERTY_UNIQUE_KEY, "")
        alone.gathered.append(Gathered(_NO_LANE, message, key, b""))
        yield alone


class UnfitError(ValueError):
    """A message cannot be sent as it is: the one at `index` of those that were added."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
