import json
import zlib

import pytest

from tandem.spark.jobs.scrub_rules import ScrubError, ScrubRules, hashed, leftovers, scrub
from tandem.spark.jobs.settings import NotJson
from tandem.wire.message import COMPRESSED_FLAG

SALT = b"a salt of some length"
EMAIL = "anna@example.org"


def scrubbed(document: object, **rules: object) -> object:
    message = scrub(json.dumps(document).encode(), 0, {}, ScrubRules(salt=SALT, **rules))  # type: ignore[arg-type]
    assert message is not None
    return json.loads(message.body)


def test_fields_are_dropped_and_hashed() -> None:
    document = {"customer": {"email": EMAIL, "phone": "1"}, "n": 3}
    assert scrubbed(document, drop_fields=("customer.phone",), hash_fields=("customer.email",)) == {
        "customer": {"email": hashed(EMAIL, SALT)},
        "n": 3,
    }


def test_in_a_list_every_element_is_meant() -> None:
    assert scrubbed([{"a": [{"b": 1}, {"b": 2, "c": 3}]}], drop_fields=("a.b",)) == [
        {"a": [{}, {"c": 3}]}
    ]


def test_what_is_no_text_is_hashed_as_json() -> None:
    assert scrubbed({"a": {"b": 1}}, hash_fields=("a",)) == {"a": hashed('{"b":1}', SALT)}
    assert scrubbed({"a": None}, hash_fields=("a",)) == {"a": None}


def test_a_name_that_is_there_twice_does_not_hide_a_value() -> None:
    body = b'{"customer": {"email": "anna@example.org"}, "customer": {}}'
    message = scrub(body, 0, {}, ScrubRules(drop_fields=("customer.email",)))
    assert message is not None
    assert b"anna" not in message.body


def test_a_name_may_be_spelled_with_escapes() -> None:
    message = scrub(b'{"\\u0065mail": "x"}', 0, {}, ScrubRules(drop_fields=("email",)))
    assert message is not None
    assert message.body == b"{}"


def test_properties_are_dropped_and_hashed() -> None:
    rules = ScrubRules(
        drop_properties=frozenset({"a"}), hash_properties=frozenset({"b"}), salt=SALT
    )
    message = scrub(b"no json", 7, {"a": "1", "b": "2", "c": "3"}, rules)
    assert message is not None
    assert message.properties == {"b": hashed("2", SALT), "c": "3"}
    assert (message.body, message.sys_flag) == (b"no json", 7)


def test_a_compressed_body_is_read() -> None:
    body = zlib.compress(b'{"email": "x", "n": 1}')
    message = scrub(body, COMPRESSED_FLAG | 0x300, {}, ScrubRules(drop_fields=("email",)))
    assert message is not None
    assert (message.body, message.sys_flag) == (b'{"n":1}', 0)


def test_what_is_no_json_fails_or_stays_or_goes() -> None:
    rules = {kind: ScrubRules(drop_fields=("a",), not_json=kind) for kind in NotJson}
    with pytest.raises(ScrubError, match="not_json: keep or drop"):
        scrub(b"text", 0, {}, rules[NotJson.FAIL])
    kept = scrub(b"text", 0, {}, rules[NotJson.KEEP])
    assert kept is not None
    assert kept.body == b"text"
    assert scrub(b"text", 0, {}, rules[NotJson.DROP]) is None


def test_a_batch_in_one_record_is_refused() -> None:
    with pytest.raises(ScrubError, match="a batch in one record"):
        scrub(b"{}", 0x80, {}, ScrubRules(drop_fields=("a",)))


def test_a_value_that_is_elsewhere_in_the_message_is_found() -> None:
    body = json.dumps({"email": EMAIL, "note": f"write to {EMAIL}"}).encode()
    message = scrub(body, 0, {"KEYS": EMAIL, "x": "y"}, ScrubRules(drop_fields=("email",)))
    assert message is not None
    assert leftovers(message) == ["its body", "property KEYS"]
    message = scrub(b'{"email": "ab", "n": "ab"}', 0, {}, ScrubRules(drop_fields=("email",)))
    assert message is not None
    assert leftovers(message) == []  # too short to mean anything


def test_rules_are_told_apart_without_telling_the_salt() -> None:
    one = ScrubRules(drop_fields=("a",), salt=SALT)
    assert one.digest == ScrubRules(drop_fields=("a",), salt=SALT).digest
    assert one.digest != ScrubRules(drop_fields=("b",), salt=SALT).digest
    assert one.digest != ScrubRules(drop_fields=("a",), salt=b"other").digest
    assert SALT.hex() not in one.digest
