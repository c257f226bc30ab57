"""Rows to messages: one Arrow batch after the other, in slices.

The columns of a whole batch are checked before a row of it becomes a message. A text or a list that
only its own row shows to be wrong is found when its turn comes.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tandem.spark.arrow_cut import is_there, values_of
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.errors import RowError
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.unique_key import RowKeys, key_of
from tandem.wire.message import Message
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY, joined_keys
from tandem.wire.record_scan import Bools

SLICE_ROWS: Final = 1024
"""Rows that are messages at a time: what an Arrow batch takes as Python objects is bounded."""

NOT_COPIED: Final = frozenset(
    {
        *("UNIQ_KEY", "WAIT", "TANDEM_ACK", "DELAY", "MSG_REGION", "TRACE_ON", "CLUSTER"),
        *("REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"),
        *("MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET"),
        *("TRAN_MSG", "PGROUP", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "TRANSFER_FLAG"),
        *("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
        *("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "DUP_INFO", "EXTEND_UNIQ_INFO", "__CRC32#"),
    }
)
"""What producers and brokers write into properties for themselves: it belongs to another message.

Source: RocketMQ 5.3.3, MessageConst.
"""


Slice = tuple[list[Message], list[int | None] | None]
"""Messages, and the queue of each; None: no row says one."""


class MessageMaker:
    """Makes the messages of one partition. `where` names it in errors."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, keys: RowKeys, where: str
    ) -> None:
        self._options = options
        self._columns = columns
        self._keys = keys
        self._where = where
        self._rows = 0
        """How many were in the batches before."""

    def table(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of a batch, each in the one type that messages are made of.

        Raises:
            RowError: a row cannot be a message.
        """
        table = {
            name: _plain(column)
            for name, column in zip(self._columns.names, batch.columns, strict=True)
        }
        self._check(table)
        return table

    def passed(self, count: int) -> None:
        """Count rows that somebody else has made messages of."""
        self._rows += count

    def slices(self, table: dict[str, pa.Array], rows: int) -> Iterator[Slice]:
        """Yield the messages of a table of this many rows, some at a time, in order.

        Raises:
            RowError: a row cannot be a message.
        """
        for start in range(0, rows, SLICE_ROWS):
            part = {name: column.slice(start, SLICE_ROWS) for name, column in table.items()}
            count = min(SLICE_ROWS, rows - start)
            queue_ids = part.pop("queueId").to_pylist() if "queueId" in part else None
            yield self._messages(part, count), queue_ids
            self._rows += count

    def _check(self, table: dict[str, pa.Array]) -> None:
        body = self._columns.body
        if not self._options.topic:
            self._refuse(~is_there(table["topic"]), "topic", "is null: give it, or filter the row")
        self._refuse(
            ~is_there(table[body]), body, "is null: filter such rows, or write coalesce(body, '')"
        )
        most = self._options.message_max_bytes
        self._refuse(
            values_of(pc.binary_length(table[body])) > most,
            body,
            f"has more than {most} bytes: cut it, or raise maxMessageSizeBytes here and"
            " maxMessageSize of the brokers",
        )
        for name in ("queueId", "delayTimeLevel", "delayMs", "deliverTimeMs"):
            if name in table:
                negative = is_there(table[name]) & (values_of(table[name]) < 0)
                self._refuse(negative, name, "is negative")

    def _refuse(self, bad: Bools, column: str, what: str) -> None:
        if bad.any():
            raise self._error(int(bad.argmax()), f"column {column} {what}")

    def _error(self, index: int, what: object) -> RowError:
        row = self._rows + index
        return RowError(f"row {row} of {self._where}: {what}", row)

    def _messages(self, table: dict[str, pa.Array], count: int) -> list[Message]:
        columns = {name: _values(name, column) for name, column in table.items()}

        def of(name: str) -> Any:  # noqa: ANN401 - as the column is
            return columns.get(name) or repeat(None, count)

        topics = repeat(self._options.topic, count) if self._options.topic else of("topic")
        unique = self._keys.take(count)
        if "uniqueKey" in columns:
            own = columns["uniqueKey"]
            unique = [key_of(text) if text else key for text, key in zip(own, unique, strict=True)]
        made: list[Message] = []
        try:
            # Rows made before an error stay in the list.
            made.extend(
                map(
                    _message,
                    topics,
                    of(self._columns.body),
                    of("keys"),
                    of("tags"),
                    of("properties"),
                    unique,
                    of("flag"),
                    of("delayTimeLevel"),
                    of("delayMs"),
                    of("deliverTimeMs"),
                    of("shardingKey"),
                )
            )
        except (ValueError, TypeError) as error:
            raise self._error(len(made), error) from error
        return made

    def error(self, index: int, what: object) -> RowError:
        """Return what is wrong with a message of the slice that was yielded last."""
        return self._error(index, what)


def _message(
    topic: str,
    body: bytes,
    keys: str | list[str] | None,
    tags: str | None,
    properties: list[tuple[str, str | None]] | None,
    unique_key: str,
    flag: int | None,
    delay_time_level: int | None,
    delay_ms: int | None,
    deliver_time_ms: int | None,
    sharding_key: str | None,
) -> Message:
    if properties:
        of_user = _properties(properties)
        of_user[PROPERTY_UNIQUE_KEY] = unique_key
        sharding_key = of_user.pop("__SHARDINGKEY", "") if sharding_key is None else sharding_key
    else:
        of_user = {PROPERTY_UNIQUE_KEY: unique_key}
    if not topic:
        raise ValueError("column topic is empty: give it, or filter the row")
    if type(keys) is list:
        keys = joined_keys(keys)
    return Message(
        topic,
        body,
        keys or "",
        tags or "",
        flag or 0,
        of_user,
        None,
        delay_time_level or 0,
        delay_ms or 0,
        deliver_time_ms or 0,
        sharding_key or "",
    )


def _properties(pairs: list[tuple[str, str | None]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in NOT_COPIED:
            continue
        if value is None:
            raise ValueError(
                f"column properties: the value of {name!r} is null; leave it out with map_filter"
            )
        found[name] = value
    return found


def _plain(column: pa.Array) -> pa.Array:
    """Return a column in the one type that messages are made of."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in {"body", "value"} and pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values: list[Any] = column.to_pylist()
    return values
