from store.queue.awake_queues import AwakeQueues


def test_what_wakes_is_returned_until_it_sleeps_in_the_order_of_waking() -> None:
    awake: AwakeQueues[str] = AwakeQueues()
    for queue in ("b", "a", "b"):
        awake.woke(queue, 0)
    assert awake.queues() == ["b", "a"]
    awake.slept("b")
    awake.slept("b")
    assert "b" not in awake
    assert awake.queues() == ["a"]


def test_growth_begins_with_the_number_at_the_first_waking_and_is_taken_once() -> None:
    awake: AwakeQueues[str] = AwakeQueues()
    awake.woke("a", 3)
    awake.slept("a")
    awake.woke("a", 5)
    assert awake.grown_count == 1
    assert awake.take_grown() == {"a": 3}
    assert awake.take_grown() == {}
    assert "a" in awake


def test_a_queue_that_is_gone_is_neither() -> None:
    awake: AwakeQueues[str] = AwakeQueues()
    awake.woke("a", 0)
    awake.gone("a")
    assert awake.queues() == []
    assert not awake.grown_count
