"""Which member of a group reads which queues. Pure: the same on every member.

Source: RocketMQ 5.3.3, AllocateMessageQueueAveragely.
"""

from collections.abc import Sequence

from tandem.client.results import MessageQueue


def allocated_queues(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """Return the share of `member`: neighbours, as many as the others have, or one more.

    Both lists are sorted here, as every member does. A member that is not among them gets none.
    """
    ordered = sorted(set(members))
    if member not in ordered:
        return []
    place = ordered.index(member)
    share, rest = divmod(len(queues), len(ordered))
    start = place * share + min(place, rest)
    return sorted(queues)[start : start + share + (place < rest)]
