import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plain_text import is_utf8, one_line, plain, plain_json, plain_lines, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("broker-a", "broker-a"),
        ("Grüße, 订单 🙂", "Grüße, 订单 🙂"),
        ("C:\\n", "C:\\n"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J\x07\x9b31m\x7f", "\\x1b[2J\\x07\\x9b31m\\x7f"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("\u2066a\u2069\u200e\u200f\u061c", "\\u2066a\\u2069\\u200e\\u200f\\u061c"),
        ("a\u2028b\u2029c\x85", "a\\u2028b\\u2029c\\x85"),
        ("\ud800\ufeff", "\\ud800\\ufeff"),
    ],
)
def test_what_a_terminal_or_a_log_acts_on_is_spelled_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_is_one_line_that_can_be_written(text: str) -> None:
    shown = plain(text)
    assert len(shown.encode().decode().splitlines()) <= 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    assert plain(shown) == shown


def test_the_lines_of_our_own_texts_stay_lines() -> None:
    assert plain_lines("one\x1b\ntwo\r\n") == "one\\x1b\ntwo\\r\n"


def test_what_nobody_reads_is_cut_and_its_length_said() -> None:
    assert shortened("x" * 10, 10) == "x" * 10
    assert one_line("\n" * 3_000_000, 4) == "\\n\\n\\n\\n... (3,000,000 characters)"


def test_json_of_ascii_alone_may_have_something_to_spell_out() -> None:
    assert plain_json(b'"a\x7fb"') == b'"a\\u007fb"'


@given(st.text())
def test_json_means_the_same_and_moves_no_terminal(text: str) -> None:
    encoded = plain_json(msgspec.json.encode({"body": text, text: 1}))
    assert json.loads(encoded) == {"body": text, text: 1}
    assert plain(encoded.decode()) == encoded.decode()


@pytest.mark.parametrize(
    ("text", "says"), [("", True), ("\xff\U0001f600", True), ("a\udcff", False)]
)
def test_a_text_of_the_command_line_may_be_bytes(text: str, *, says: bool) -> None:
    assert is_utf8(text) is says
