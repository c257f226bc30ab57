"""Where messages come again that a consumer did not acknowledge in time: one step for ever.

What comes again from a retry topic goes there once more.
"""

from __future__ import annotations

from tandem.wire.receipt_handle import TopicMark
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX


def retry_topic_of(group: str, topic: str, mark: TopicMark) -> str:
    """Return where messages of a topic come again for a group; the topic itself if it is one."""
    return topic if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else mark.topic(topic, group)
