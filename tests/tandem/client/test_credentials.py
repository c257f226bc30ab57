import pytest

from tandem.client.credentials import Credentials
from tandem.wire.acl_signature import AclKey
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import (
    RemotingCommand,
    SerializeType,
    decode_frame_parts,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import GetRouteInfoRequestHeader

KEYS = Credentials("AK", "SK")


def test_a_request_is_signed_as_rocketmqs_clients_do() -> None:
    """The vector was made by AclClientRPCHook's classes."""
    command = RemotingCommand(10, 1, ext={"topic": "T1", "queueId": "0"}, body=b"hello")
    signed = KEYS.signed(command)
    assert signed.ext_fields()["Signature"] == "LHK0WYsWa63xtyCDHCqoKKzoJ1s="
    assert signed.ext_fields()["AccessKey"] == "AK"
    assert (signed.opaque, signed.body) == (1, b"hello")


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.MSGPACK])
@pytest.mark.parametrize("topic", ["T", ""])
def test_what_arrives_has_a_good_signature_in_every_encoding(
    kind: SerializeType, topic: str
) -> None:
    ext = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True) if topic else None
    command = RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext=ext, body=b"x", serialize_type=kind
    )
    frame = encode_frame(KEYS.signed(command))
    header_bytes = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
    header, body = frame[8 : 8 + header_bytes], frame[8 + header_bytes :]
    arrived = decode_frame_parts(frame[4], header, body)
    assert AclKey("SK").is_signed(arrived.ext_fields(), arrived.body)
    assert not AclKey("other").is_signed(arrived.ext_fields(), arrived.body)
    if topic:
        assert arrived.decode_header(GetRouteInfoRequestHeader).topic == topic


def test_both_keys_are_given_or_none() -> None:
    assert Credentials.of("", "") is None
    assert Credentials.of("AK", "SK") == KEYS
    with pytest.raises(ArgumentError) as caught:
        Credentials.of("AK", "")
    assert caught.value.names == ("secret_key",)
    with pytest.raises(ArgumentError) as caught:
        Credentials.of("", "SK")
    assert caught.value.names == ("access_key",)


def test_the_secret_is_not_in_what_is_logged() -> None:
    assert "SK" not in repr(KEYS)
