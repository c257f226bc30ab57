from tandem.wire.acl_signature import acl_signature, is_signed_with

FIELDS = {"topic": "T1", "AccessKey": "AK", "queueId": "0"}


def test_it_is_that_of_rocketmq() -> None:
    """Made by RocketMQ's own classes."""
    assert acl_signature("SK", FIELDS, b"hello") == "LHK0WYsWa63xtyCDHCqoKKzoJ1s="


def test_it_is_good_for_this_request_and_key_alone() -> None:
    signed = {**FIELDS, "Signature": acl_signature("SK", FIELDS, b"hello")}
    assert is_signed_with("SK", signed, b"hello")
    assert not is_signed_with("SX", signed, b"hello")
    assert not is_signed_with("SK", signed, b"hellp")
    assert not is_signed_with("SK", {**signed, "queueId": "1"}, b"hello")
    assert not is_signed_with("SK", FIELDS, b"hello")
    assert not is_signed_with("SK", {**FIELDS, "Signature": "\u00e9\ud83d"}, b"hello")
