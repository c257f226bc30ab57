"""To which queue a message goes: the server chooses, whatever its client has chosen.

Messages of one group are in one queue, whichever language their producers have: each has a hash of
its own. Others go anywhere.

Source: RocketMQ 5.3.3, SendMessageActivity.SendMessageQueueSelector; Guava 32,
Hashing.consistentHash.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from node.grpc.errors import CallError
from node.grpc.protocol import messages as pb
from tandem.wire.message_properties import java_string_hash
from tandem.wire.route import PERM_WRITE, TopicRouteData

ANY_QUEUE: Final = -1
"""The broker picks one."""

_64_BITS: Final = (1 << 64) - 1


class Choice(NamedTuple):
    """A queue of a broker."""

    broker_name: str
    queue_id: int


def consistent_hash(number: int, buckets: int) -> int:
    """Return the bucket of a number of 64 bits."""
    state, candidate = number & _64_BITS, 0
    while True:
        state = (2862933555777941757 * state + 1) & _64_BITS
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


def choose_queue(route: TopicRouteData, group: str | None, random: Random) -> Choice:
    """Return where a message goes; `group` is its message group.

    Raises:
        CallError: the topic has no queue that can be written (FORBIDDEN).
    """
    live = {data.broker_name for data in route.broker_datas}
    writable = sorted(
        (
            data
            for data in route.queue_datas
            if data.perm & PERM_WRITE and data.write_queue_nums and data.broker_name in live
        ),
        key=lambda data: data.broker_name,
    )
    if not writable:
        raise CallError(pb.FORBIDDEN, "no writable queue")
    if not group:
        return Choice(random.choice(writable).broker_name, ANY_QUEUE)
    place = consistent_hash(
        java_string_hash(group), sum(data.write_queue_nums for data in writable)
    )
    for data in writable:
        if place < data.write_queue_nums:
            return Choice(data.broker_name, place)
        place -= data.write_queue_nums
    raise AssertionError("a bucket is one of the queues")
