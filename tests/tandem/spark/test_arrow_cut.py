import subprocess
import sys

import numpy as np
import pyarrow as pa

from tandem.spark.arrow_cut import (
    binaries,
    cut_out,
    indices_of,
    is_there,
    numbers,
    numbers_or_null,
    repeated,
    text,
    truths,
    truths_of,
    values_of,
    word,
)


def test_stretches_are_copied_also_empty_ones_and_those_that_touch() -> None:
    data = bytearray(b"0123456789")
    cut = cut_out(data, np.array([0, 2, 5, 5]), np.array([2, 5, 5, 10]))
    assert cut.to_pylist() == [b"01", b"234", b"", b"56789"]
    data.clear()  # raises BufferError if Arrow still looked at it
    assert cut_out(b"", np.empty(0, np.int64), np.empty(0, np.int64)).to_pylist() == []


def test_text_that_is_not_utf8_is_replaced() -> None:
    assert text(pa.array([b"ok", b"\xff"])).to_pylist() == ["ok", "\ufffd"]
    assert text(pa.array([b"\xff", None])).to_pylist() == ["\ufffd", None]


def test_text_of_a_dictionary_stays_one_and_has_each_word_once() -> None:
    words = text(pa.array([b"\xff", b"ok", b"\xfe", b"ok"]).dictionary_encode())
    assert words.to_pylist() == ["\ufffd", "ok", "\ufffd", "ok"]
    assert len(words.dictionary) == 2


def test_words_are_repeated_in_their_order() -> None:
    assert repeated(["KEYS", "\xe4", ""], 2).to_pylist() == ["KEYS", "\xe4", ""] * 2
    assert repeated(["KEYS"], 0).to_pylist() == []


def test_arrays_are_laid_over_numbers() -> None:
    every_second = np.arange(6)[::2]
    assert numbers(every_second).to_pylist() == [0, 2, 4]
    assert numbers(np.empty(0, np.int32)).type == pa.int32()
    assert numbers(np.array([1]), pa.timestamp("us", "UTC")).type == pa.timestamp("us", "UTC")
    there = np.array([True, False, True])
    assert numbers_or_null(every_second, there).to_pylist() == [0, None, 4]
    assert numbers_or_null(every_second, there).null_count == 1
    assert truths(np.arange(11) % 3 == 0).to_pylist() == [n % 3 == 0 for n in range(11)]
    assert truths(np.empty(0, np.bool_)).to_pylist() == []


def test_numbers_and_truths_of_a_piece_are_those_of_the_piece() -> None:
    whole = pa.array([None if n % 5 == 0 else n for n in range(40)], pa.int16())
    flags = pa.array([n % 3 == 0 for n in range(40)])
    for start, count in ((0, 40), (3, 9), (8, 8), (17, 1), (40, 0)):
        piece = whole.slice(start, count)
        there = is_there(piece)
        assert there.tolist() == [n % 5 != 0 for n in range(start, start + count)]
        assert values_of(piece)[there].tolist() == [each.as_py() for each in piece if each.is_valid]
        assert (
            truths_of(flags.slice(start, count)).tolist() == flags.slice(start, count).to_pylist()
        )
    assert is_there(pa.array([1, 2])).tolist() == [True, True]
    assert values_of(pa.array([], pa.int64())).tolist() == []


def test_binaries_are_those_of_a_list() -> None:
    for values in ([], [b"a", None, b"", b"bcd"]):
        assert binaries(values).to_pylist() == values
    assert word("x").as_py() == "x"


def test_indices_of_a_piece_of_a_dictionary_are_those_of_the_piece() -> None:
    words = pa.array(["a", "b", "a", "c"]).dictionary_encode()
    assert indices_of(words).tolist() == [0, 1, 0, 2]
    assert indices_of(words.slice(1, 2)).tolist() == [1, 0]


def test_nothing_here_imports_pandas() -> None:
    """It is installed with the extra, and takes a worker a second of processor time."""
    program = """
import sys

import numpy as np
import pyarrow as pa

from tandem.spark.record_batches import COLUMNS, RecordSlice
from tandem.wire.message import MessageExt, encode_record
from tandem.wire.record_scan import read_columns, walk_records
from tests.tandem.client.fake_broker import message_ext

changes = [{}, {"KEYS": "k", "TAGS": "t"}, {"another": "v", "KEYS": "x"}]
data = bytearray()
for number, properties in enumerate(changes * 20):
    message = message_ext(b"body", queue_offset=number)
    message.properties.update(properties)
    data += encode_record(message)
part = RecordSlice(data, read_columns(data, walk_records(data).starts), "store")
assert part.batch(list(COLUMNS)).num_rows == 60
late = {"pandas", "numpy.ma"}.intersection(sys.modules)
assert not late, late
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
