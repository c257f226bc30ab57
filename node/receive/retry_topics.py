"""How the retry topics of POP are called, and what is in them.

    V1   `%RETRY%<group>_<topic>`   what RocketMQ writes unless it is told otherwise
    V2   `%RETRY%<group>+<topic>`

V1 is not unique: group `a_b` with topic `c` has that of group `a` with topic `b_c`.

Source: RocketMQ 5.3.3, KeyBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.receive.requests import Mark
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from typing import Final

_SEPARATORS: Final = {Mark.RETRY_V1: "_", Mark.RETRY_V2: "+"}


def retry_topic_of(group: str, topic: str, mark: Mark) -> str:
    """Return where messages of a topic come again for a group; the topic itself if it is one."""
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) or mark is Mark.NORMAL:
        return topic
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{_SEPARATORS[mark]}{topic}"


def mark_of(group: str, topic: str) -> Mark:
    """Return of which kind a real topic is. Source: ExtraInfoUtil."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return Mark.NORMAL
    is_v2 = topic.startswith(f"{RETRY_GROUP_TOPIC_PREFIX}{group}+")
    return Mark.RETRY_V2 if is_v2 else Mark.RETRY_V1


def topic_of_retry(group: str, topic: str) -> str:
    """Return the topic that a real one is for: the reverse of `retry_topic_of`."""
    for separator in _SEPARATORS.values():
        begin = f"{RETRY_GROUP_TOPIC_PREFIX}{group}{separator}"
        if topic.startswith(begin):
            return topic[len(begin) :]
    return topic
