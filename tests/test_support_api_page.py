"""Docstrings become Markdown, and methods what a caller sees of them."""

import ast

import pytest

import tandem
from tests.support.api_page import markdown_of, read_class, signature_of, topic_of

DOCSTRING = """Send one message.

    await send(message)

Args:
    message: what to send; it
        goes to one queue.
    *others: and these.

Raises:
    ClientError, ValueError: it
        cannot be sent.

Returns:
    The answer: status and offset.

Source: RocketMQ 5.3.3, DefaultMQProducer.send.
"""

MARKDOWN = """Send one message.

    await send(message)

Args:

- `message`: what to send; it goes to one queue.
- `*others`: and these.

Raises:

- `ClientError, ValueError`: it cannot be sent.

Returns:

- The answer: status and offset.

Source: RocketMQ 5.3.3, DefaultMQProducer.send."""


def test_sections_become_lists_and_what_is_indented_stays_code() -> None:
    assert markdown_of(DOCSTRING) == MARKDOWN


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("def f(self): ...", "def f()"),
        (
            "async def f(self, a: int=1, *, b: str) -> None: ...",
            "async def f(a: int = 1, *, b: str) -> None",
        ),
        (
            "def f(self, a, /, *rest: int, wait_ms=12000, **more: str): ...",
            "def f(a, /, *rest: int, wait_ms=12_000, **more: str)",
        ),
        ("@classmethod\ndef f(cls, a): ...", "@classmethod\ndef f(a)"),
        ("@staticmethod\ndef f(a): ...", "@staticmethod\ndef f(a)"),
        (
            f"def f(self, {'a' * 60}: int, {'b' * 60}: int) -> int: ...",
            f"def f(\n    {'a' * 60}: int,\n    {'b' * 60}: int,\n) -> int",
        ),
    ],
)
def test_a_signature_is_that_of_a_call(source: str, signature: str) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    decorators = [ast.unparse(each) for each in node.decorator_list]
    assert signature_of(node, decorators) == signature


def test_members_are_those_of_the_source_and_nothing_private_is_among_them() -> None:
    described = read_class(tandem.SendResult, "SendResult")
    assert described.constructor.startswith("class SendResult(\n    status: SendStatus,\n")
    members = {each.signature: each for each in described.members}
    assert members["reason: str = ''"].text.startswith("The broker's words")
    assert not [each for each in members if each.startswith("_")]


def test_errors_and_unknown_names_have_a_place() -> None:
    assert topic_of(tandem.SendTimeoutError) == "Errors"
    assert topic_of(tandem.BlockingProducer) == "Sending"
    assert topic_of(int) == "More"


def test_words_that_may_be_written_are_said() -> None:
    described = read_class(tandem.PullConsumer, "PullConsumer")
    assert "StartFrom = Literal['earliest', 'latest', 'committed']" in described.words
