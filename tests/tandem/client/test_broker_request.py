from tandem.client.broker_request import BrokerRequest, BrokerRequests
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType
from tandem.wire.response_code import ResponseCode


def request(code: int, flag: int = 0) -> tuple[BrokerRequest, list[RemotingCommand]]:
    said: list[RemotingCommand] = []
    command = RemotingCommand(code, 7, flag, serialize_type=SerializeType.MSGPACK)
    return BrokerRequest("10.0.0.1:10911", command, said.append), said


def test_a_request_is_answered_with_its_number_in_its_encoding() -> None:
    requests = BrokerRequests()
    requests.on(307, lambda each: each.answer(body=b"{}"))
    asked, said = request(307)
    requests.serve(asked)
    (answer,) = said
    assert (answer.code, answer.opaque, answer.body, answer.is_response) == (0, 7, b"{}", True)
    assert answer.serialize_type is SerializeType.MSGPACK


def test_what_nobody_serves_is_refused_in_words() -> None:
    asked, said = request(4711)
    BrokerRequests().serve(asked)
    assert said[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "4711" in (said[0].remark or "")


def test_a_one_way_request_gets_no_answer() -> None:
    requests = BrokerRequests()
    seen: list[BrokerRequest] = []
    requests.on(40, seen.append)
    for code in (40, 4711):
        asked, said = request(code, ONEWAY_FLAG)
        requests.serve(asked)
        asked.answer()
        assert said == []
    assert len(seen) == 1
