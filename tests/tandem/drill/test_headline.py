import msgspec

from tandem.drill.headline import in_words
from tests.tandem.drill import samples


def test_a_promise_to_another_group_counts() -> None:
    assert in_words(samples.summary(groups=samples.two_groups())) == "FAILED: 3 broken promises"


def test_an_order_that_nobody_promised_is_not_counted() -> None:
    failed = samples.summary(expectations=[samples.expectation(held=False)], disorder=["queue 1"])
    assert in_words(failed) == "FAILED: 1 expectation not met, 1 message read out of order"

    free = msgspec.structs.replace(failed.target, not_promised={"read_out_of_order": "why"})
    words = in_words(msgspec.structs.replace(failed, target=free))

    assert words == "FAILED: 1 expectation not met"
