import base64
import json

import pytest
import typer

from tandem.cli.consume import _checked_start
from tandem.client import RouteNotFoundError
from tests.tandem.cli.conftest import Tandem


@pytest.mark.parametrize(
    ("start", "group", "checked"),
    [
        (None, "", "earliest"),
        (None, "readers", "committed"),
        ("latest", "", "latest"),
        ("earliest", "readers", "earliest"),
        ("17", "", "17"),
    ],
)
def test_where_to_begin(start: str | None, group: str, checked: str) -> None:
    assert _checked_start(start, group) == checked


@pytest.mark.parametrize("start", ["committed", "yesterday", "-1", "1.5"])
def test_a_beginning_that_makes_no_sense_is_refused(start: str) -> None:
    with pytest.raises(typer.BadParameter):
        _checked_start(start, "")


@pytest.fixture
def ten(tandem: Tandem, request: pytest.FixtureRequest) -> str:
    """A topic with ten messages in its queue 0."""
    topic: str = request.node.name[:100].replace("[", "-").replace("]", "")
    lines = "\n".join(f"line {number}" for number in range(10))
    assert tandem("produce", topic, "--queue", "0", "--key", "k1", input=lines).exit_code == 0
    return topic


@pytest.mark.fault
def test_a_topic_is_printed_from_an_offset_and_up_to_a_count(tandem: Tandem, ten: str) -> None:
    assert tandem("consume", ten, "--max", "2").stdout.splitlines() == ["line 0", "line 1"]
    assert tandem("consume", ten, "--from", "8").stdout.splitlines() == ["line 8", "line 9"]
    assert tandem("consume", ten, "--from", "latest").stdout == ""


@pytest.mark.fault
def test_a_group_goes_on_where_it_stopped(tandem: Tandem, ten: str) -> None:
    def consume(*options: str) -> list[str]:
        return tandem("consume", ten, "--group", "readers", *options).stdout.splitlines()

    assert consume("--max", "3") == ["line 0", "line 1", "line 2"]
    assert consume("--max", "1") == ["line 3"]
    assert len(consume()) == 6
    assert consume() == []
    assert len(consume("--from", "earliest")) == 10


@pytest.mark.fault
def test_following_ends_when_enough_was_printed(tandem: Tandem, ten: str) -> None:
    read = tandem("consume", ten, "--follow", "--max", "10")
    assert len(read.stdout.splitlines()) == 10


@pytest.mark.fault
def test_json_has_everything_about_a_message(tandem: Tandem, ten: str) -> None:
    line = tandem("consume", ten, "--format", "json", "--max", "1").stdout
    record = json.loads(line)
    assert record["body"] == "line 0"
    assert (record["topic"], record["queue_id"], record["queue_offset"]) == (ten, 0, 0)
    assert record["properties"]["KEYS"] == "k1"


@pytest.mark.fault
def test_a_body_that_is_no_text_is_printed_as_it_is_or_in_base64(tandem: Tandem) -> None:
    tandem("produce", "bytes-topic", input=b"\xff\xfe")
    assert tandem("consume", "bytes-topic").stdout_bytes == b"\xff\xfe\n"
    record = json.loads(tandem("consume", "bytes-topic", "--format", "json").stdout)
    assert base64.b64decode(record["body_base64"]) == b"\xff\xfe"


@pytest.mark.fault
def test_a_topic_that_is_not_there_is_told(tandem: Tandem) -> None:
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        tandem("consume", "nowhere")
