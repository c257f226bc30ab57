from tandem.wire.lag import total_lag


def test_being_past_one_end_takes_nothing_off_what_is_not_consumed_elsewhere() -> None:
    assert [total_lag(each) for each in ([], [0], [3, -1], [-1, 0], [-1, -2])] == [0, 0, 3, -1, -3]
