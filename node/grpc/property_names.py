"""Names of properties: which are RocketMQ's own, and which a gRPC message has fields for.

Source: RocketMQ 5.3.3, MessageConst.STRING_HASH_SET.
"""

from __future__ import annotations

from typing import Final

from tandem.wire.message_properties import (
    PROPERTY_LITE_TOPIC,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
)

PROPERTY_BORN_HOST: Final = "__BORNHOST"

RESERVED: Final = frozenset(
    {
        *(
            "1ST_POP_TIME",
            "ARRIVE_TIME",
            "BORN_TIMESTAMP",
            "BUYER_ID",
        ),
        *(
            "CLUSTER",
            "CONSUME_START_TIME",
            "CORRECTION_FLAG",
            "CORRELATION_ID",
        ),
        *(
            "DELAY",
            "DLQ_ORIGIN_MESSAGE_ID",
            "DLQ_ORIGIN_TOPIC",
            "DUP_INFO",
        ),
        *(
            "EXTEND_UNIQ_INFO",
            "INNER_MULTI_QUEUE_OFFSET",
            "INSTANCE_ID",
            "KEYS",
        ),
        *(
            "MAX_OFFSET",
            "MAX_RECONSUME_TIMES",
            "MIN_OFFSET",
            "MQ2_FLAG",
        ),
        *(
            "MSG_REGION",
            "MSG_TYPE",
            "ORIGIN_MESSAGE_ID",
            "PGROUP",
        ),
        *(
            "POP_CK",
            "POP_CK_OFFSET",
            "PUSH_REPLY_TIME",
            "REAL_QID",
        ),
        *(
            "REAL_TOPIC",
            "RECONSUME_TIME",
            "REPLY_TO_CLIENT",
            "RETRY_TOPIC",
        ),
        *(
            "TAGS",
            "TIMER_DELAY_LEVEL",
            "TIMER_DELAY_MS",
            "TIMER_DELAY_SEC",
        ),
        *(
            "TIMER_DELIVER_MS",
            "TIMER_DEL_UNIQKEY",
            "TIMER_DEQUEUE_MS",
            "TIMER_ENQUEUE_MS",
        ),
        *(
            "TIMER_OUT_MS",
            "TIMER_ROLL_TIMES",
            "TRACE_ON",
            "TRANSFER_FLAG",
        ),
        *(
            "TRAN_MSG",
            "TRAN_PREPARED_QUEUE_OFFSET",
            "TTL",
            "UNIQ_KEY",
        ),
        *(
            "WAIT",
            "__BORNHOST",
            "__CRC32#",
        ),
    }
)
"""Users cannot set them, and are not shown them. Others of RocketMQ's are not in the set there,
`__transactionId__` among them, and so are shown."""

RESERVED_OF_OURS: Final = frozenset(
    {
        *("TANDEM_ACK", "TANDEM_RESENT_BY"),
        *(PROPERTY_PRIORITY, PROPERTY_LITE_TOPIC, PROPERTY_SHARDING_KEY),
    }
)
"""Beyond that set, what users cannot set; all the same they are RocketMQ's or ours."""
