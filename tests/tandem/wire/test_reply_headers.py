"""Headers of replies and recalls, under the names that RocketMQ's clients use."""

import msgspec

from tandem.wire.reply_headers import (
    RecallableResponseHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    ReplyMessageRequestHeader,
)


def test_the_names_are_rocketmqs() -> None:
    recallable = RecallableResponseHeader("id", 1, 2, recall_handle="h")
    assert msgspec.to_builtins(recallable) == {
        "msgId": "id",
        "queueId": 1,
        "queueOffset": 2,
        "recallHandle": "h",
    }
    assert msgspec.to_builtins(RecallMessageResponseHeader("id", "R")) == {
        "msgId": "id",
        "MSG_REGION": "R",
    }
    assert msgspec.to_builtins(RecallMessageRequestHeader("T", "h", "g")) == {
        "topic": "T",
        "recallHandle": "h",
        "producerGroup": "g",
    }
    reply = ReplyMessageRequestHeader("g", "T", "TBW102", 8, 0, 0, 5, 0, "1.2.3.4:5", "h:1", 6)
    assert msgspec.to_builtins(reply) == {
        "producerGroup": "g",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 8,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "flag": 0,
        "bornHost": "1.2.3.4:5",
        "storeHost": "h:1",
        "storeTimestamp": 6,
    }
