import pytest

from tandem.console.message_json import body_json


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"", ""), (b"abcd", "abcd"), (b"abc\xc3\xa9", "abc"), (b"\xff", None), (b"ab\xff", None),
     (b"abcdefgh", "abcd"), (b"abc\xc3", "abc"), (b"\xed\xa0\x80", None)],
)  # fmt: skip
def test_text_of_a_body_is_cut_between_characters(body: bytes, text: str | None) -> None:
    found = body_json(body, 4)
    whole = len(body) <= 4
    assert (found.size, found.truncated) == (len(body), not whole)
    if whole and body.endswith(b"\xc3"):
        text = None  # all of it is there, and it ends within a character
    assert found.text == text
