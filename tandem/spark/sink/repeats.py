"""Rows that were sent twice, and how a reader drops them.

once = drop_repeats(spark.read.format("tandem").options(...).load())
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import coalesce, col, concat_ws

_KEY: Final = "__tandem_unique_key"
_NEEDED: Final = ("topic", "properties", "brokerName", "queueId", "queueOffset", "storeTimestamp")


def drop_repeats(table: DataFrame, *, within: str = "1 hour") -> DataFrame:
    """Return the rows of `table`, without those whose topic and UNIQ_KEY an earlier row has.

    `table` is what `format("tandem")` reads, with the columns `topic`, `properties`, `brokerName`,
    `queueId` and `queueOffset`; of a stream also `storeTimestamp`. A message without UNIQ_KEY is
    always kept. Which of several copies is kept is not said: they have the same body.

    Of a batch all copies are found. Of a stream those that were stored less than `within` after the
    first; Spark keeps the keys of that time in its state.

    Raises:
        ValueError: a column is missing.
    """
    needed = [name for name in _NEEDED if name != "storeTimestamp" or table.isStreaming]
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise ValueError(
            f"drop_repeats needs the columns {', '.join(needed)}; {', '.join(missing)} is missing:"
            " drop repeats first, then select"
        )
    place = concat_ws("/", col("brokerName"), col("queueId"), col("queueOffset"))
    keyed = table.withColumn(_KEY, coalesce(col("properties")["UNIQ_KEY"], place))
    if table.isStreaming:
        keyed = keyed.withWatermark("storeTimestamp", within)
        once = keyed.dropDuplicatesWithinWatermark(["topic", _KEY])
    else:
        once = keyed.dropDuplicates(["topic", _KEY])
    return once.drop(_KEY)
