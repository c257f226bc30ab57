"""What several connections have sent, in one piece."""

from array import array

from tandem.wire.read_together import ReadTogether


def test_each_has_its_own_bytes_and_what_is_not_taken_of_them_is_left() -> None:
    came = ReadTogether.of([b"ab", b"", b"cde"])
    assert came.data == b"abcde"
    assert [came.rest(number) for number in range(3)] == [b"ab", b"", b"cde"]
    came.starts[2] += 1
    assert [came.rest(number) for number in range(3)] == [b"ab", b"", b"de"]
    assert not came.is_used_up
    came.starts[0] = 2
    came.starts[2] = 5
    assert came.is_used_up


def test_nothing_of_nobody_is_used_up() -> None:
    came = ReadTogether.of([])
    assert came == (b"", array("q"), array("q"))
    assert came.is_used_up
