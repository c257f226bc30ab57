import pytest
import typer

from tandem.cli.queue_places import Place, place_of
from tandem.client import MessageQueue, PullConsumer

NOW = 1_700_000_000_000
QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(word="earliest")),
        ("latest", Place(word="latest")),
        ("committed", Place(word="committed")),
        ("0", Place(offset=0)),
        ("17", Place(offset=17)),
        ("-10m", Place(time_ms=NOW - 600_000)),
        ("1700000000000", Place(time_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Place(time_ms=1_700_000_000_000)),
    ],
)
def test_a_place_is_a_word_an_offset_or_a_time(text: str, place: Place) -> None:
    assert place_of(text, "--from", now_ms=NOW, has_group=True) == place


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "", "9" * 30, "٣", "10m"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        place_of(text, "--from", now_ms=NOW, has_group=True)


def test_committed_offsets_are_a_groups() -> None:
    with pytest.raises(typer.BadParameter):
        place_of("committed", "--from", now_ms=NOW, has_group=False)


class Offsets:
    """What a master answers."""

    def __init__(self, committed: int | None) -> None:
        self.committed = committed

    async def max_offset(self, _queue: MessageQueue) -> int:
        return 99

    async def search_offset(self, _queue: MessageQueue, timestamp_ms: int) -> int:
        return timestamp_ms // 100

    async def fetch_consume_offset(self, _queue: MessageQueue) -> int | None:
        return self.committed


@pytest.mark.parametrize(
    ("place", "committed", "offset"),
    [
        (Place(word="earliest"), 5, 0),
        (Place(word="latest"), 5, 99),
        (Place(word="committed"), 5, 5),
        (Place(word="committed"), None, 0),
        (Place(offset=0), 5, 0),
        (Place(offset=7), 5, 7),
        (Place(time_ms=4_200), 5, 42),
        (Place(time_ms=0), 5, 0),
    ],
)
async def test_a_place_is_an_offset_of_each_queue(
    place: Place, committed: int | None, offset: int
) -> None:
    consumer: PullConsumer = Offsets(committed)  # type: ignore[assignment]  # all that is asked
    assert await place.in_queue(consumer, QUEUE) == offset
