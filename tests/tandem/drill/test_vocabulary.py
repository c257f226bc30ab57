import pytest

from tandem.drill.scenario_file import catalogue
from tandem.drill.vocabulary import SENTENCES, match, split_group


def test_every_sentence_is_used_or_can_be_matched() -> None:
    examples = {
        "{who}": "the master",
        "{other}": "everything",
        "{seconds}": "2.5",
        "{share}": "20",
        "{number}": "5",
        "{name}": "steady",
        "{mode}": "sync",
        "{statuses}": "SEND_OK or UNKNOWN",
    }
    for sentence in SENTENCES:
        text = sentence.template
        for place, example in examples.items():
            text = text.replace(place, example)
        found = match(text)
        assert found is not None, text
        assert found[0] is sentence, text
    assert match("bring me a coffee") is None
    used = {step.sentence.template for scenario in catalogue() for step in scenario.steps}
    assert len(used) > 30


@pytest.mark.parametrize(
    ("line", "sentence", "group"),
    [
        ("kill the master", "kill the master", ""),
        ("kill the master of group broker-b", "kill the master", "broker-b"),
        ("expect sends ok within 9 s in group b_2", "expect sends ok within 9 s", "b_2"),
        ("kill slave 1 of another group", "kill slave 1", "another"),
        ("check no election in another group", "check no election", "another"),
        ("lose the disk of broker-a-1", "lose the disk of broker-a-1", ""),
        ("kill the group", "kill the group", ""),
    ],
)
def test_a_line_may_end_with_the_group_that_it_means(line: str, sentence: str, group: str) -> None:
    assert split_group(line) == (sentence, group)
