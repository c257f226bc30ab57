from tandem.drill.headline import in_words
from tests.tandem.drill import samples


def test_a_promise_to_another_group_counts() -> None:
    assert in_words(samples.summary(groups=samples.two_groups())) == "FAILED: 3 broken promises"
