from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.request_signature import (
    SIGNATURE_FIELD,
    answer_signature,
    is_rightly_answered,
    is_rightly_signed,
    signed,
)

FIELDS = {"a": "1", "b": ""}


def test_a_signature_is_for_one_key_code_number_node_and_content() -> None:
    fields = signed(b"key", 103, FIELDS, b"body", challenge="n", target="t:1")
    assert is_rightly_signed(b"key", 103, fields, b"body")
    assert not is_rightly_signed(b"kez", 103, fields, b"body")
    assert not is_rightly_signed(b"key", 104, fields, b"body")
    assert not is_rightly_signed(b"key", 103, fields, b"bodz")
    assert not is_rightly_signed(b"key", 103, fields | {"more": ""}, b"body")
    for name in fields:
        assert not is_rightly_signed(b"key", 103, fields | {name: "x"}, b"body")
        left = {key: value for key, value in fields.items() if key != name}
        assert not is_rightly_signed(b"key", 103, left, b"body")
    assert not is_rightly_signed(b"key", 103, fields | {SIGNATURE_FIELD: "\udcff é"[1:]}, b"body")


def test_an_answer_is_signed_for_one_request() -> None:
    fields = {SIGNATURE_FIELD: answer_signature(b"key", 7, "n", b"body")}
    assert is_rightly_answered(b"key", 7, "n", fields, b"body")
    assert not is_rightly_answered(b"kez", 7, "n", fields, b"body")
    assert not is_rightly_answered(b"key", 8, "n", fields, b"body")
    assert not is_rightly_answered(b"key", 7, "m", fields, b"body")
    assert not is_rightly_answered(b"key", 7, "n", fields, b"bodz")
    assert not is_rightly_answered(b"key", 7, "n", {}, b"body")


def test_a_request_is_no_answer() -> None:
    request = signed(b"key", 7, {}, b"body", challenge="n", target="t:1")
    assert not is_rightly_answered(b"key", 7, "n", request, b"body")


@given(st.dictionaries(st.text(), st.text()), st.dictionaries(st.text(), st.text()))
def test_no_two_requests_have_one_signature(some: dict[str, str], others: dict[str, str]) -> None:
    one, two = (
        signed(b"key", 1, fields, b"", challenge="n", target="t")[SIGNATURE_FIELD]
        for fields in (some, others)
    )
    assert (one == two) == (some == others)
