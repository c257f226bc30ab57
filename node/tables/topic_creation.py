"""Whether sends create topics: what the cluster file says now, whatever it said before.

`TBW102` is in the table, and in the log of a fenced group, from the first master on that had the
creation switched on. A master that opens gives it the inherit permission or takes it away.

Source: RocketMQ 5.3.3, TopicConfigManager.createTopicInSendMessageMethod: the default topic loses
the permission to inherit where `autoCreateTopicEnable` is off.
"""

from __future__ import annotations

import logging

import msgspec

from node.errors import RequestError
from node.tables.tables import Tables
from tandem.wire.route import PERM_INHERIT
from tandem.wire.system_topics import AUTO_CREATE_TOPIC

_log = logging.getLogger(__name__)


def set_auto_creation(tables: Tables, *, enabled: bool) -> None:
    """Have the default topic, if there is one, say whether topics are made from it.

    If that cannot be written, it is logged, and the next master tries again.
    """
    config = tables.topics.get(AUTO_CREATE_TOPIC)
    if config is None:
        return
    perm = config.perm | PERM_INHERIT if enabled else config.perm & ~PERM_INHERIT
    if perm == config.perm:
        return
    try:
        tables.change_topics(msgspec.structs.replace(config, perm=perm))
    except RequestError as error:
        _log.warning("auto_create_topic_enable could not be put into effect: %s", error.remark)
    else:
        _log.info("sends to unknown topics %s them", "create" if enabled else "do not create")
