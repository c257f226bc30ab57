from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tandem.spark.sink.unique_key import RowKeys, key_of


def test_a_row_has_the_same_key_however_often_it_is_sent() -> None:
    whole = RowKeys("query", 7, 3).take(1000)
    again = RowKeys("query", 7, 3)
    assert again.take(1) + again.take(600) + again.take(399) == whole
    assert len(set(whole)) == 1000


def test_keys_as_digits_are_the_same_keys() -> None:
    whole = RowKeys("query", 7, 3).take(200_000)
    digits = RowKeys("query", 7, 3)
    lines = [
        line.tobytes().decode()
        for count in (1, 70_000, 0, 129_999)
        for line in digits.take_digits(count)
    ]
    assert lines == whole


def test_other_writes_batches_and_partitions_have_other_keys() -> None:
    places = [(write, batch, part) for write in "qr" for batch in (0, 1, 11) for part in (0, 1)]
    keys = [key for place in places for key in RowKeys(*place).take(500)]
    assert len(set(keys)) == len(keys)
    assert RowKeys("q", 1, 11).take(1) != RowKeys("q", 11, 1).take(1)


def test_keys_have_the_layout_of_rocketmq_with_a_time_of_zero() -> None:
    keys = RowKeys("query", 0, 0).take(70_000)
    assert len(set(keys)) == 70_000
    for key in keys[::997]:
        packed = bytes.fromhex(key)
        assert len(packed) == 16
        assert key == key.upper()
        assert packed[10:14] == bytes(4)


def test_the_counter_goes_over_into_the_rest_of_the_key() -> None:
    keys = RowKeys("query", 0, 0).take(70_000)
    numbers = [int(key[:20] + key[28:], 16) for key in keys]
    assert all(after - before == 1 for before, after in pairwise(numbers))


@given(st.text(), st.text())
def test_a_key_of_ones_own_makes_one_key(text: str, other: str) -> None:
    assert key_of(text) == key_of(text)
    assert (key_of(text) == key_of(other)) == (text == other)
    assert len(bytes.fromhex(key_of(text))) == 16


def test_a_unique_key_that_was_read_stays_as_it_is() -> None:
    for key in ("7F000001AB" + "0" * 22, "F" * 56):
        assert key_of(key) == key
    for other in ("7f000001ab" + "0" * 22, "F" * 33, "order-7"):
        assert key_of(other) != other
