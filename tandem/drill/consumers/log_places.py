"""Which message a log has at each place of the queues that groups of consumers read.

What a consumer read at a place is compared with it at the end: nobody has to read the place again.
A master that was replaced, and does not know it, may hand out what the next master does not have;
the group goes on behind that place, and never gets what is there.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tandem.drill.consumers.lines import Place
from tandem.spark.audit.record_rows import scan_options
from tandem.spark.commitlog.plan import plan_splits
from tandem.spark.commitlog.read import read_split

_COLUMNS: Final = ("topic", "queueId", "queueOffset", "keys")


def places_in_log(
    store: Path, broker_name: str, topics: Collection[str], since: int = 0
) -> dict[Place, str]:
    """Return the ids of all messages of these topics; `store` is that of a broker's last master.

    What is below the offset `since` was there before the drill, and may be large: it is not read.

    Raises:
        SparkSourceError, OSError: the log cannot be read.
    """
    found: dict[Place, str] = {}
    options = scan_options(str(store))
    wanted = pa.array(sorted(topics), pa.string())
    for split in plan_splits(options):
        if split.file.offset + split.end <= since:
            continue
        for batch in read_split(split, options, _COLUMNS):
            rows = batch.filter(pc.is_in(batch.column("topic"), value_set=wanted))
            columns = (rows.column(name).to_pylist() for name in _COLUMNS)
            for topic, queue_id, queue_offset, keys in zip(*columns, strict=True):
                found[topic, broker_name, queue_id, queue_offset] = keys or ""
    return found
