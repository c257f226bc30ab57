"""Sending a dead letter again, once; what the log says of it is what everybody goes by.

The message that a letter becomes has a unique key that is made of the letter, so whoever sends it
can look first whether it is there. Two who look at the same time both find nothing, and both send.
Their copies have the same key and the same queue, in which one comes first: so the second of them
finds two when it looks once more, after its own is there.
"""

import itertools
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from tandem.client.dead_letter import PROPERTY_RESENT_BY, key_again, message_again, origin_topic
from tandem.client.errors import BrokerError, RouteNotFoundError
from tandem.wire.message_properties import PROPERTY_SHARDING_KEY
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from tandem.client import Admin, Producer
    from tandem.wire.message import MessageExt

RESEND_GROUP: Final = "tandem-resend"

INDEX_SECONDS_MAX: Final = 3.0
"""For so long is waited until a node has indexed what was sent; milliseconds are usual."""

LOOK_SECONDS: Final = 0.05


class Resent(msgspec.Struct, frozen=True):
    """That a letter was sent again: how often, and the last time.

    Attributes:
        message_id: The unique key of the message that it has become.
        at_ms: When it was stored, in ms since 1970.
        by: Who had it sent, as its sender wrote into it; empty if it did not.
    """

    times: int
    message_id: str
    at_ms: int
    by: str = ""


class SentAgain(msgspec.Struct, frozen=True):
    """A letter that has been sent now.

    Attributes:
        copies: How often it is there; None if the index does not say yet. Above 1 somebody else
            has sent it at the same moment.
    """

    message_id: str
    copies: int | None


async def find_resent(admin: "Admin", letter: "MessageExt") -> Resent | None:
    """Return how often a letter was sent again, None if it was not. Raises ClientError."""
    topic = origin_topic(letter)
    if not topic:
        return None
    times = 0
    last: MessageExt | None = None
    for number in itertools.count():
        found = await _copies(admin, topic, key_again(letter, number))
        if not found:
            break
        times += len(found)
        last = found[-1]
    if last is None:
        return None
    by = last.properties.get(PROPERTY_RESENT_BY, "")
    return Resent(times, last.msg_id, last.store_timestamp_ms, by)


async def send_again(
    admin: "Admin",
    producer: "Producer",
    letter: "MessageExt",
    *,
    by: str = "",
    again: bool = False,
) -> SentAgain:
    """Send a letter to its first topic once more, whether that was done before or not.

    Without `again` it has the key of the first time: who has found nothing before, and is not the
    first after all, then finds two copies.

    Raises:
        ClientError: it was not sent, or that is not known.
        ArgumentError: it does not say to which topic.
    """
    topic = origin_topic(letter)
    number = 0
    while again and topic and await _copies(admin, topic, key_again(letter, number)):
        number += 1
    message = message_again(letter, unique_key=key_again(letter, number), by=by)
    # All copies in one queue: whichever was second can see the first. One that had a queue by its
    # sharding key stays in it.
    sharding_key = letter.properties.get(PROPERTY_SHARDING_KEY) or key_again(letter)
    answer = await producer.send(message, sharding_key=sharding_key)
    return SentAgain(answer.msg_id, await _count(admin, topic, answer.msg_id))


async def _count(admin: "Admin", topic: str, key: str) -> int | None:
    """Return how many copies there are, once ours is among them."""
    with trio.move_on_after(INDEX_SECONDS_MAX):
        while True:
            try:
                if found := await _copies(admin, topic, key):
                    return len(found)
            except BrokerError:
                return None  # it was sent, and whoever sends may not always look
            await trio.sleep(LOOK_SECONDS)
    return None


async def _copies(admin: "Admin", topic: str, key: str) -> "list[MessageExt]":
    try:
        return [each for each in await admin.messages_by_key(topic, key) if each.msg_id == key]
    except RouteNotFoundError:
        return []
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []
