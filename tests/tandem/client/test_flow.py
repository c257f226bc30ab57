import pytest

from tandem.client.errors import BrokerError
from tandem.client.flow import Call, call_successfully
from tandem.wire.request_code import RequestCode
from tests.tandem.client.fake_broker import MASTER, FakeBroker, HandShell, answer_to

CALL = Call(MASTER, RequestCode.HEART_BEAT, None, deadline=5.0)


def test_a_good_answer_is_returned() -> None:
    shell = HandShell({MASTER: FakeBroker()})
    assert shell.run(call_successfully(CALL)).code == 0


def test_a_refusal_carries_code_remark_and_address() -> None:
    broker = FakeBroker()
    broker.handlers[RequestCode.HEART_BEAT] = lambda request: answer_to(request, 2, remark="busy")
    with pytest.raises(BrokerError) as caught:
        HandShell({MASTER: broker}).run(call_successfully(CALL))
    assert (caught.value.code, caught.value.remark, caught.value.address) == (2, "busy", MASTER)
