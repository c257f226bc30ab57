"""Where a commit log ends: the rule that recovery, verification and Spark share.

Sound records (`record_rule`) follow one another from the start of a file. At the first place where
none starts there is one of these:

    a blank that fills the rest of the file    the log goes on in the next file, if there is one
    zeros up to the end of the file            the log ends here: files are made full of zeros
    nothing: the file is full                  likewise
    anything else                              a tail

What a tail means shows only past it:

    a sound record that was on disk before     corrupt: bytes of the log have changed
    the last stop
    no such record                             torn: node or machine stopped in the middle of
                                               writing, and the log ends where the tail begins

The three readers of logs follow this rule and differ in what they do at a tail:

    store.log.log_end         stops. A node that starts cuts a torn tail off, after a copy was set
                              aside, and refuses to start on a corrupt one.
    tandem.log.log_end        goes on at the next sound record, and judges every such place once
                              all are known. Queues and checkpoint count, too.
    tandem.spark.commitlog    looks again, for a node may be writing just now. A tail that stays
                              is read to the end of the file, and corrupt if any record follows.

All three look for the next record by `record_rule.record_starts`, and check what that finds for
themselves: recovery all of the record, the log tools its lengths, Spark what it reads there.

Recovery alone takes a blank of any size that is left in its file: RocketMQ only checks its bounds
(CommitLog.checkMessageAndReturnSize), and a log that RocketMQ opens has to open here.
"""

from typing import Final, Literal

TailKind = Literal["corrupt", "torn"]

CORRUPT: Final = "corrupt"
TORN: Final = "torn"


def blank_fault(blank_bytes: int, left_bytes: int) -> str:
    """Return why a blank does not close its file, "" if it does; `left_bytes` is with it."""
    if blank_bytes == left_bytes:
        return ""
    return f"blank record of {blank_bytes} bytes, {left_bytes} are left in the file"


def was_on_disk(store_timestamp_ms: int, synced_ms: int, tail_ms: int = 0) -> bool:
    """Say whether a sound record past a tail was on disk before the last stop.

    The checkpoint vouches for records that were stored before `synced_ms`. Times show that only as
    far as the clock went forward: a record older than `tail_ms`, the time of the last record before
    the tail, does not count.
    """
    return tail_ms <= store_timestamp_ms < synced_ms
