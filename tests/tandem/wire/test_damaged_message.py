from tandem.wire.damaged_message import DamagedMessageHeader
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand


def test_the_fields_are_in_the_answer_under_their_names() -> None:
    answer = RemotingCommand(14, 1, RESPONSE_FLAG, "", DamagedMessageHeader(7, 1234))
    assert answer.ext_fields() == {"damagedQueueOffset": "7", "damagedPhysicalOffset": "1234"}
    assert answer.decode_header(DamagedMessageHeader) == DamagedMessageHeader(7, 1234)


def test_an_error_with_another_reason_has_none() -> None:
    answer = RemotingCommand(14, 1, RESPONSE_FLAG, "the store is stopping", None)
    assert answer.decode_header(DamagedMessageHeader) == DamagedMessageHeader()
