"""Looking into store directories, ours or RocketMQ's, without a node: the library of `tandem log`.

    from tandem.log import RecordFilter, dump_records, open_store_directory
    store = open_store_directory("data/broker-a-0")
    for record in dump_records(store, RecordFilter(topics=frozenset({"orders"}))):
        ...

Nothing here writes to a store.
"""

from tandem.log.diff import LogDiff, diff_logs
from tandem.log.dump import DumpedRecord, dump_records
from tandem.log.errors import LogToolError
from tandem.log.findings import Finding
from tandem.log.life import why_in_stores
from tandem.log.listing import Listing, list_store
from tandem.log.log_scan import LogDamage, LogWindow, scan_log
from tandem.log.record_filter import Range, RecordFilter
from tandem.log.stat import StoreStat, store_stat
from tandem.log.store_directory import StoreDirectory, open_store_directory
from tandem.log.verify import VerifyReport, verify_store

__all__ = [
    "DumpedRecord",
    "Finding",
    "Listing",
    "LogDamage",
    "LogDiff",
    "LogToolError",
    "LogWindow",
    "Range",
    "RecordFilter",
    "StoreDirectory",
    "StoreStat",
    "VerifyReport",
    "diff_logs",
    "dump_records",
    "list_store",
    "open_store_directory",
    "scan_log",
    "store_stat",
    "verify_store",
    "why_in_stores",
]
