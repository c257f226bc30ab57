"""How long a name may be that a client gives, and that a broker keeps."""

from __future__ import annotations

from typing import Final

from node.errors import RequestError
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import CID_RMQ_SYS_TRANS

NAME_BYTES_MAX: Final = 255
"""Of a group, a client, or a topic with its prefix. Source: TopicValidator.GROUP_MAX_LENGTH."""


def check_name(what: str, name: str) -> None:
    """Refuse a name that is too long; `what` is what it names.

    Raises:
        RequestError: It is (INVALID_PARAMETER).
    """
    # Of ASCII alone, as nearly all are, this costs one comparison.
    if len(name) * 4 <= NAME_BYTES_MAX:
        return
    size = len(name.encode(errors="replace"))
    if size > NAME_BYTES_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"the name of the {what} has {size} bytes, the most allowed are {NAME_BYTES_MAX}:"
            f" {name[:40]}...",
        )


def check_group_of_clients(group: str) -> None:
    """Refuse a name that is too long, and the group whose offsets a broker keeps for itself.

    If somebody moves those, the check of transactions passes over some of them. RocketMQ lets any
    client do that.

    Raises:
        RequestError: INVALID_PARAMETER, or NO_PERMISSION.
    """
    check_name("consumer group", group)
    if group == CID_RMQ_SYS_TRANS:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{group}] is the broker's own, for the check of transactions",
        )
