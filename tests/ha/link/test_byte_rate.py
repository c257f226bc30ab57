from ha.link.byte_rate import ByteRate


def test_the_last_whole_second_is_told() -> None:
    rate = ByteRate()
    rate.add(10, 5.0)
    rate.add(20, 5.9)
    assert rate.in_last_second(5.95) == 0
    assert rate.in_last_second(6.0) == 30
    rate.add(1, 6.5)
    assert rate.in_last_second(6.9) == 30
    assert rate.in_last_second(7.0) == 1


def test_a_second_without_bytes_is_zero() -> None:
    rate = ByteRate()
    rate.add(10, 5.0)
    assert rate.in_last_second(7.0) == 0
    rate.add(10, 7.0)
    assert rate.in_last_second(9.5) == 0
