"""What is said and done when part of a log is gone that was to be read.

    deleted    files were deleted, by retention or by hand, after somebody counted on them
    cut        the log ends before a place where it was read already: a node of a fenced group cuts
               off what was never confirmed when it learns of another master
    rewritten  it was cut, and has grown past that place again with other records

With `failOnDataLoss=true` each is a `DataLossError`. Otherwise it is logged as a warning, and with
`onError=row` it is a row with nothing but store, physicalOffset and error.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from tandem.spark.commitlog.options import ScanOptions
from tandem.spark.commitlog.read import read_split
from tandem.spark.commitlog.split import LogSplit, LostRange
from tandem.spark.errors import DataLossError, LossCause
from tandem.spark.record_batches import error_batch

LOOKS_MAX: Final = 3
"""How often stores are looked at when files are deleted meanwhile."""

Looked = TypeVar("Looked")

_log = logging.getLogger(__name__)

_GO_ON = "or go on without it with option failOnDataLoss=false"


def deleted(store: str, start: int, end: int) -> LostRange:
    """Files with [start, end) are gone."""
    return LostRange(
        store,
        start,
        f"store {store}: physical offsets {start} to {end} are gone, their files were deleted",
        "Read again from what is left, keep files for longer (file_reserved_time_hours;"
        f" fileReservedTime), {_GO_ON}",
        LossCause.DELETED,
    )


def cut(store: str, offset: int, end: int, *, is_bounded: bool = False) -> LostRange:
    """The log ends at `end`, or what is confirmed of it does; it was read up to `offset`."""
    return LostRange(
        store,
        end,
        f"store {store}: the log {_ends(is_bounded)} {end}, and was read up to {offset} before:"
        " its end was cut off, as a node does with what was never confirmed, or this is another"
        " store",
        f"Start anew with another checkpoint, {_GO_ON}",
        LossCause.CUT,
    )


def beyond(store: str, offset: int, end: int, *, is_bounded: bool = False) -> LostRange:
    """The log ends at `end`, or what is confirmed of it does: before `offset`, which is wanted."""
    more = ", read what is not confirmed with includeUnconfirmed=true" if is_bounded else ""
    return LostRange(
        store,
        end,
        f"store {store}: the log {_ends(is_bounded)} {end}, before {offset} that is asked for",
        f"Ask for less{more}, {_GO_ON}",
        LossCause.BEYOND,
    )


def _ends(is_bounded: bool) -> str:  # noqa: FBT001 - of one word
    return f"{'is confirmed up to' if is_bounded else 'ends at'} physical offset"


def rewritten(store: str, offset: int) -> LostRange:
    """Other bytes than before precede `offset`."""
    return LostRange(
        store,
        offset,
        f"store {store}: the log was read up to physical offset {offset} before, and holds other"
        " records there now: its end was cut off and written anew, or this is another store",
        f"Start anew with another checkpoint, {_GO_ON}",
        LossCause.REWRITTEN,
    )


def looking_again(look: Callable[[], Looked]) -> Looked:
    """Return what `look` finds; look anew if files are deleted meanwhile.

    Raises:
        DataLossError: they were every time.
    """
    for _ in range(LOOKS_MAX - 1):
        try:
            return look()
        except FileNotFoundError:
            continue
    try:
        return look()
    except FileNotFoundError as error:
        raise DataLossError(
            f"{error.filename or error} was deleted while logs were looked at, and so were files"
            f" in {LOOKS_MAX - 1} tries before; try again",
            LossCause.DELETED,
            -1,
        ) from error


def report(loss: LostRange, options: ScanOptions) -> None:
    """Raise or log a loss, as the options say.

    Raises:
        DataLossError: `failOnDataLoss` is true.
    """
    if options.fail_on_data_loss:
        raise DataLossError(f"{loss.reason}. {loss.remedy}", loss.cause, loss.start)
    _log.warning("%s", loss.reason)


def read_lost(
    loss: LostRange, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the row that stands for a loss, if there is to be one."""
    if options.on_error == "row":
        yield error_batch(names, loss.store, loss.start, f"lost: {loss.reason}")


def read_scan(
    split: LogSplit, options: ScanOptions, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read a split from end to end, as `read_split`; its file may have been deleted.

    Raises:
        LogDamagedError: a record is torn or corrupt and `options.on_error` is `fail`.
        DataLossError: the file is gone and `failOnDataLoss` is true.
    """
    try:
        yield from read_split(split, options, names)
    except FileNotFoundError:
        base = split.file.offset
        loss = deleted(split.store, base + split.start, base + split.end)
        report(loss, options)
        yield from read_lost(loss, options, names)
