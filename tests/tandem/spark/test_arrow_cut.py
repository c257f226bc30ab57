import numpy as np
import pyarrow as pa

from tandem.spark.arrow_cut import cut_out, repeated, text


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
