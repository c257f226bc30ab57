import base64
import hmac

import msgspec

from tandem.wire.acl_signature import AclKey, acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand
from tests.support.paths import ROOT

FIELDS = {"topic": "T1", "AccessKey": "AK", "queueId": "0"}


def command_of(frame: bytes) -> RemotingCommand:
    frames = FrameBuffer()
    frames.receive_data(frame)
    command = frames.next_command()
    assert command is not None
    return command


def test_it_is_that_of_rocketmq() -> None:
    """Made by RocketMQ's own classes."""
    assert acl_signature("SK", FIELDS, b"hello") == "LHK0WYsWa63xtyCDHCqoKKzoJ1s="


def test_it_is_good_for_this_request_and_key_alone() -> None:
    signed = {**FIELDS, "Signature": acl_signature("SK", FIELDS, b"hello")}
    assert AclKey("SK").is_signed(signed, b"hello")
    assert not AclKey("SX").is_signed(signed, b"hello")
    assert not AclKey("SK").is_signed(signed, b"hellp")
    assert not AclKey("SK").is_signed({**signed, "queueId": "1"}, b"hello")
    assert not AclKey("SK").is_signed(FIELDS, b"hello")
    assert not AclKey("SK").is_signed({**FIELDS, "Signature": "\u00e9\ud83d"}, b"hello")


def test_requests_of_rocketmqs_clients_are_signed_rightly() -> None:
    """Recorded: Java 5.3.3 and 4.9.8 and Go 2.1.2, all codes that they send."""
    lines = (
        (ROOT / "tests/data/rocketmq-clients/signed_requests.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert len(lines) == 61
    for line in lines:
        said = msgspec.json.decode(line)
        command = command_of(bytes.fromhex(said["frame_hex"]))
        fields = command.ext_fields()
        key = AclKey(said["secretKey"])
        assert key.is_signed(fields, command.body), said["name"]
        assert not AclKey(said["secretKey"] + "x").is_signed(fields, command.body)
        assert not key.is_signed({**fields, "topic": "another"}, command.body)


def test_an_empty_value_of_a_binary_header_may_be_signed_as_null() -> None:
    """Recorded: a broker of RocketMQ 5.3.3 takes the second and refuses the first."""
    fields = {"AccessKey": "AK", "a": "p", "i": ""}
    key = AclKey("SK")
    plain = {**fields, "Signature": key.sign(fields, b"")}
    as_null = {**fields, "Signature": key.sign({**fields, "i": "null"}, b"")}
    assert key.is_signed(plain, b"", is_binary=True)
    assert key.is_signed(as_null, b"", is_binary=True)
    assert not key.is_signed(as_null, b"")


def test_the_mark_of_a_query_by_unique_key_is_signed_or_not() -> None:
    """By the version of the client, which nobody signs."""
    fields = {"AccessKey": "AK", "_UNIQUE_KEY_QUERY": "true", "topic": "T"}
    without = {"AccessKey": "AK", "topic": "T"}
    key = AclKey("SK")
    for said in (fields, without):
        assert key.is_signed({**fields, "Signature": key.sign(said, b"")}, b"")
    assert not key.is_signed({**without, "Signature": key.sign(fields, b"")}, b"")


def test_a_key_longer_than_a_block_is_hashed_first() -> None:
    long = "k" * 100
    expected = base64.b64encode(hmac.digest(long.encode(), b"AKbody", "sha1")).decode()
    assert AclKey(long).sign({"AccessKey": "AK"}, b"body") == expected
