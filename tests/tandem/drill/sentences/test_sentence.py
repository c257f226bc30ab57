import pytest
import trio.testing

from tandem.drill.scenario import NotPossibleError, Stage
from tandem.drill.sentences.sentence import Sentence, Words
from tests.tandem.drill.fake_world import World


async def nothing(stage: Stage, words: Words) -> None:
    """What a sentence does is no matter here."""


def test_a_line_is_taken_apart_at_the_places_of_its_template() -> None:
    sentence = Sentence("delay {who} and {other} by {number} ms", nothing)
    found = sentence.pattern.fullmatch("delay slave 1 and the old master by 50 ms")
    assert found is not None
    assert found.groupdict() == {"who": "slave 1", "other": "the old master", "number": "50"}
    assert sentence.pattern.fullmatch("delay slave 1 and the old master by many ms") is None


@pytest.mark.parametrize(
    ("seconds", "fits"), [("5", True), ("0.25", True), ("999999", True), ("99999999999", False)]
)
def test_seconds_are_no_more_than_a_clock_can_be_set_by(seconds: str, *, fits: bool) -> None:
    sentence = Sentence("set the clock of {who} {seconds} s ahead", nothing)
    line = f"set the clock of the master {seconds} s ahead"
    assert (sentence.pattern.fullmatch(line) is not None) == fits


async def test_what_this_machine_cannot_do_is_told_with_the_line(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.disks_possible = False
    with pytest.raises(NotPossibleError, match=r"line 4, 'fill the disk of slave 1': only root"):
        await world.play("fill the disk of slave 1")
    assert world.failed == []
