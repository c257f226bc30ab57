"""How consumers of a group share queues."""

import pytest

from tests.sim.consumers.consumer import averaged


@pytest.mark.parametrize("queue_count", range(1, 9))
@pytest.mark.parametrize("client_count", range(1, 5))
def test_every_queue_has_one_client(queue_count: int, client_count: int) -> None:
    queues, ids = list(range(queue_count)), [f"c{index}" for index in range(client_count)]
    shares = [averaged(queues, ids, own) for own in ids]
    assert [queue for share in shares for queue in share] == queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_who_is_not_listed_gets_nothing() -> None:
    assert averaged([0, 1], ["a"], "b") == []
