from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.call_signature import CallSignature, CallSignatureError

HEX = "33415e4240e2c8cab936291657187265b40a37e1"
SAID = f"MQv2-HMAC-SHA1 Credential=ak, SignedHeaders=x-mq-date-time, Signature={HEX}"


@pytest.mark.parametrize(
    "said",
    [
        SAID,
        SAID.replace("ak", "ak//Rocketmq"),
        SAID.replace("ak", "ak/region/service"),
        SAID.replace(HEX, HEX.upper()),
        SAID.replace("MQv2-HMAC-SHA1", "FOO").replace("x-mq-date-time", "zzz"),
        f"X Signature={HEX},Credential=ak",
    ],
)
def test_a_signature_is_read_as_clients_write_it(said: str) -> None:
    call = CallSignature(said, "20261125T183838Z").read()
    assert (call.name, call.content) == ("ak", b"20261125T183838Z")
    assert call.signature.hex() == HEX


@pytest.mark.parametrize(
    ("said", "date", "reason"),
    [
        ("", "x", "username cannot be null."),
        (SAID, "", "datetime is null."),
        ("oneword", "x", "authentication header is incorrect."),
        (SAID.replace("ak", ""), "x", "username cannot be null."),
        (SAID.replace("ak", "//Rocketmq"), "x", "username cannot be null."),
    ],
)
def test_what_is_missing_is_said_in_the_words_of_rocketmq(
    said: str, date: str, reason: str
) -> None:
    with pytest.raises(CallSignatureError) as caught:
        CallSignature(said, date).read()
    assert str(caught.value) == reason


@pytest.mark.parametrize("wrong", ["", HEX[:-1], HEX + "0", "x" * 40, HEX[:-1] + " "])
def test_a_signature_that_is_none_is_empty_and_so_never_good(wrong: str) -> None:
    assert CallSignature(SAID.replace(HEX, wrong), "x").read().signature == b""


@given(st.text(max_size=80), st.text(max_size=20))
def test_any_text_is_read_or_one_error(said: str, date: str) -> None:
    with suppress(CallSignatureError):
        CallSignature(said, date).read()
