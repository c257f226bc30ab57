from tandem.wire.response_code import ResponseCode


def test_the_codes_of_a_stored_message_are_those_of_rocketmq() -> None:
    assert [code for code in ResponseCode if code in {0, 10, 11, 12}] == [
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ]
