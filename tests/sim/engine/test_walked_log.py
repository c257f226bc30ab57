"""Logs walked from their bytes, and compared."""

import pytest

from tests.sim.engine.walked_log import Log, first_difference, walk_log
from tests.support.log_builder import LogBuilder


def test_the_first_difference_is_found() -> None:
    assert first_difference(b"", b"abc") == 0
    assert first_difference(b"abc", b"abcd") == 3
    assert first_difference(b"abcd", b"abXd") == 2
    assert first_difference(b"Xbcd", b"abcd") == 0
    assert first_difference(b"abcX", b"abcd") == 3


def test_an_empty_log_is_fine() -> None:
    assert walk_log(b"") == Log(b"", ())


def test_the_first_difference_may_be_that_of_lengths() -> None:
    assert first_difference(b"abc", b"abd") == 2
    assert first_difference(b"abc", b"ab") == 2
    assert first_difference(b"", b"ab") == 0


def _log(count: int) -> bytes:
    builder = LogBuilder(file_bytes=512)
    for index in range(count):
        builder.put(body=b"body %d" % index, keys=f"key{index}")
    return bytes(builder.log)


def test_every_record_is_found_over_the_filler_between_files() -> None:
    data = _log(8)
    log = walk_log(data)
    assert [record.key for record in log.records] == [f"key{index}" for index in range(8)]
    assert log.records[-1].end == len(data) > 512
    assert not log.fault


def test_a_part_of_a_log_is_walked_from_where_it_begins() -> None:
    data = _log(3)
    second = walk_log(data).records[1]
    rest = walk_log(data[second.physical_offset :], second.physical_offset)
    assert rest.records == walk_log(data).records[1:]
    assert "wrong CRC or offset" in walk_log(data[second.physical_offset :]).fault


@pytest.mark.parametrize("cut", [1, 20])
def test_a_log_that_ends_inside_a_record_says_where(cut: int) -> None:
    log = walk_log(_log(3)[:-cut])
    assert len(log.records) == 2
    assert log.fault.startswith(f"byte {log.records[-1].end}: ")
