import pytest

from tandem.wire.log_end import blank_fault, was_on_disk


def test_a_blank_closes_its_file_if_it_fills_the_rest() -> None:
    assert blank_fault(100, 100) == ""
    for size in (100, 107, 109, 200):
        assert blank_fault(size, 108)


@pytest.mark.parametrize(
    ("stored_ms", "synced_ms", "tail_ms", "kept"),
    [
        (99, 100, 0, True),
        (100, 100, 0, False),
        (99, 100, 99, True),
        (98, 100, 99, False),
        (99, 0, 0, False),
    ],
)
def test_a_record_was_on_disk_if_the_checkpoint_vouches_for_its_time(
    stored_ms: int, synced_ms: int, tail_ms: int, *, kept: bool
) -> None:
    assert was_on_disk(stored_ms, synced_ms, tail_ms) == kept
