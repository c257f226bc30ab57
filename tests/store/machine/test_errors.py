"""Errors of the store carry the facts, not only words."""

from store.machine.errors import (
    AppendGapError,
    CorruptLogError,
    DiskFailedError,
    LogFault,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    TableFileError,
)


def test_all_of_them_are_store_errors() -> None:
    for kind in (
        AppendGapError,
        CorruptLogError,
        DiskFailedError,
        StoreClosedError,
        StoreFullError,
        StoreLockedError,
        TableFileError,
    ):
        assert issubclass(kind, StoreError)
        assert not issubclass(kind, OSError)
        assert kind.__doc__


def test_facts_are_attributes() -> None:
    gap = AppendGapError(offset=5, expected=7)
    assert (gap.offset, gap.expected) == (5, 7)
    assert str(gap) == "replicated bytes start at 5, the log ends at 7"
    corrupt = CorruptLogError("broken", path="/f", fault=LogFault.LENGTH, offset=3)
    assert (corrupt.path, corrupt.offset, str(corrupt)) == ("/f", 3, "broken")
    assert CorruptLogError("broken", path="/f", fault=LogFault.LENGTH).offset == -1
    assert StoreFullError("full", path="/f").path == "/f"
