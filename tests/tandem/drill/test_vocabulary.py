from tandem.drill.scenario_file import catalogue
from tandem.drill.vocabulary import SENTENCES, match


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
