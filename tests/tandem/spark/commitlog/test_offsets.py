import zlib
from pathlib import Path

import pytest

from tandem.spark.commitlog.offsets import (
    EARLIEST,
    LATEST,
    TAIL_BYTES,
    Mark,
    Position,
    check_names,
    position_in,
    read_position,
    tail_crc,
)
from tandem.spark.commitlog.places import list_files, place_of
from tandem.spark.commitlog.storage import LocalStorage
from tandem.spark.errors import OptionError
from tandem.spark.option_reader import OptionReader
from tests.support.log_builder import LogBuilder


def parsed(text: str) -> Position | None:
    given = OptionReader("test", ("startingOffsets",), {"startingOffsets": text})
    position = read_position(given, "startingOffsets", ("earliest", "latest"))
    given.finish()
    return position


def test_a_place_is_a_word_or_json_by_store() -> None:
    assert parsed("Earliest") == EARLIEST
    assert parsed(" latest ") == LATEST
    assert parsed('{"a": 5, "b": -2, "c": {"offset": 7, "tail": 9}}') == {
        "a": Mark(5),
        "b": Mark(EARLIEST),
        "c": Mark(7, 9),
    }


@pytest.mark.parametrize(
    "text", ["soon", "5", '{"a": "x"}', '{"a": -3}', '{"a": {"tail": 1}}', "["]
)
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(text)
    assert caught.value.names == ("startingOffsets",)


def test_stores_and_offsets_have_to_fit() -> None:
    assert position_in(LATEST, "a", "x").offset == LATEST
    assert position_in({"a": Mark(5)}, "a", "x") == Mark(5)
    with pytest.raises(OptionError, match="the store b; it names a"):
        position_in({"a": Mark(5)}, "b", "startingOffsets")
    check_names({"a": Mark(5)}, ["a", "b"], "x")
    check_names(LATEST, [], "x")
    with pytest.raises(OptionError, match=r"names c; load\(\) gives a, b") as caught:
        check_names({"c": Mark(5)}, ["a", "b"], "x")
    assert caught.value.names == ("x",)


def test_the_crc_is_of_what_precedes_an_offset_in_its_file(tmp_path: Path) -> None:
    log = LogBuilder(file_bytes=4096)
    for number in range(60):
        log.put(body=bytes([number]) * 100)
    files = list_files(place_of(str(log.write(tmp_path))))
    for offset in (1, 300, 4096, 4096 + 7, 8000):
        start = max(offset - TAIL_BYTES, (offset - 1) // 4096 * 4096)
        assert tail_crc(LocalStorage(), files, offset) == zlib.crc32(log.log[start:offset])
    assert tail_crc(LocalStorage(), files, 0) is None
    assert tail_crc(LocalStorage(), files[1:], 4096) is None
    assert tail_crc(LocalStorage(), files, 1 << 40) is None
