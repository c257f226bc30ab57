"""How two logs can belong together; what the handshake makes of it is in test_client."""

import pytest

from ha.fenced.epochs import EpochEntry
from ha.fenced.joining import AttachLog, Diverged, NeedsFullCopy, NeedsTruncation, OwnLog, join
from ha.fenced.protocol import CHECKED_BYTES, Objection, Welcome

ENTRIES = (EpochEntry(1, 0), EpochEntry(3, 500_000))
FILE_SIZE_BYTES = 100_000


def welcome(*, confirm: int = 0, log_start: int = 0) -> Welcome:
    return Welcome(
        epoch=3,
        node="a",
        incarnation="i",
        epochs=ENTRIES,
        log_start=log_start,
        log_end=900_000,
        confirm=confirm,
    )


def own(end: int = 600_000, *, confirm: int = 0, start: int = 0, may_object: bool = True) -> OwnLog:
    return OwnLog(
        start=start, end=end, confirm=confirm, entries=ENTRIES, promised=3, may_object=may_object
    )


@pytest.mark.parametrize(
    ("own_start", "their_start", "first"),
    [(0, 0, 600_000 - CHECKED_BYTES), (590_000, 0, 590_000), (0, 595_000, 595_000)],
)
def test_the_last_bytes_that_both_have_are_compared(
    own_start: int, their_start: int, first: int
) -> None:
    found = join(own(start=own_start), welcome(log_start=their_start), FILE_SIZE_BYTES, 600_000)
    assert isinstance(found, AttachLog)
    assert (found.offset, found.check_from) == (600_000, first)


def test_a_master_has_to_go_only_if_it_has_confirmed_nothing_since() -> None:
    ours = own(confirm=550_000)
    assert join(ours, welcome(confirm=520_000), FILE_SIZE_BYTES, 520_000) == Objection(
        parting=520_000, confirm=550_000
    )
    both = join(ours, welcome(confirm=520_001), FILE_SIZE_BYTES, 520_000)
    assert isinstance(both, Diverged)
    accepted = own(confirm=550_000, may_object=False)
    assert isinstance(join(accepted, welcome(), FILE_SIZE_BYTES, 520_000), Diverged)


def test_without_anything_in_common_what_was_confirmed_counts_as_well() -> None:
    assert isinstance(join(own(), welcome(), FILE_SIZE_BYTES, None), NeedsFullCopy)
    found = join(own(confirm=1), welcome(), FILE_SIZE_BYTES, None)
    assert found == Objection(parting=0, confirm=1)


def test_a_tail_that_was_not_confirmed_is_cut() -> None:
    found = join(own(confirm=520_000), welcome(confirm=900_000), FILE_SIZE_BYTES, 520_000)
    assert isinstance(found, NeedsTruncation)
    assert (found.cut, found.end) == (520_000, 600_000)
