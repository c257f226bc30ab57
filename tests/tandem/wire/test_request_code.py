from tandem.wire.request_code import RequestCode


def test_codes_are_those_of_rocketmq() -> None:
    assert RequestCode(310) is RequestCode.SEND_MESSAGE_V2
    assert RequestCode(320) is RequestCode.SEND_BATCH_MESSAGE
    assert RequestCode(105) is RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert RequestCode(907) is RequestCode.GET_BROKER_HA_STATUS
