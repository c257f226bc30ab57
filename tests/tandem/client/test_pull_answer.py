import pytest

from tandem.client.pull_answer import expression_type, is_all, passes_over, pull_result, wanted
from tandem.client.results import PullResult, PullStatus
from tandem.wire.message import encode_record
from tandem.wire.message_properties import PROPERTY_TAGS
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_headers import PullMessageResponseHeader
from tests.tandem.client.fake_broker import answer_to, message_ext

REQUEST = RemotingCommand(code=11)


def result(
    code: int, next_offset: int, tags: str = "*", *, with_message: bool = False
) -> PullResult:
    message = message_ext(properties={PROPERTY_TAGS: "A"})
    body = encode_record(message) if with_message else b""
    ext = PullMessageResponseHeader(0, next_offset, 2, 9)
    return pull_result(answer_to(REQUEST, code, ext, body), "a:1", tags, 4)


def test_found_messages_without_a_wanted_tag_are_no_match() -> None:
    assert result(0, 5, "A", with_message=True).status is PullStatus.FOUND
    assert result(0, 5, "B", with_message=True).status is PullStatus.NO_MATCHED_MSG


@pytest.mark.parametrize(
    ("code", "next_offset", "tags", "does"),
    [
        (21, 7, "*", True),  # the queue begins there
        (21, 7, "A", True),
        (20, 7, "*", True),  # deleted or damaged: everybody wants what is not tagged
        (20, 7, "A", False),  # other tags
        (19, 4, "*", False),
        (21, 4, "*", False),
        (21, 2, "*", False),  # beyond the end
    ],
)
def test_an_answer_that_moves_a_reader_past_messages_is_known(
    code: int, next_offset: int, tags: str, *, does: bool
) -> None:
    assert passes_over(result(code, next_offset, tags), tags, 4) == does


def test_messages_pass_over_nothing() -> None:
    assert not passes_over(result(0, 5, with_message=True), "*", 4)


def test_tags_or_an_expression_are_wanted_and_not_both() -> None:
    assert expression_type(wanted("A || B", None)) == "TAG"
    assert expression_type(wanted("*", "a > 5")) == "SQL92"
    # A word that means everything as tags means nothing of the kind as an expression.
    assert is_all("*")
    assert not is_all(wanted("*", "*"))
    with pytest.raises(ValueError, match="cannot be given both"):
        wanted("A", "a > 5")
