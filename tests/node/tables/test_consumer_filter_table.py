from contextlib import suppress
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import node.tables.consumer_filter_table as table_module
from node.simulated.disk import SimulatedDisk
from node.tables.consumer_filter_table import (
    FILTER_DATA_CLEAN_TIME_SPAN_MS,
    SAVE_SECONDS,
    ConsumerFilterTable,
    SubscriptionFilter,
)
from store.machine.errors import StoreError, StoreFullError, TableFileError
from store.machine.table_file import TableFile
from store.queue.consume_queue_ext import CqExtUnit
from tandem.wire.bloom_filter import BloomFilter
from tests.support.logged import logged

PATH: Final = "/store/config/consumerFilter.json"
BORN_MS: Final = 1_700_000_000_000

GOLDEN: Final = (
    b'{\n\t"filterDataByTopic":{\n\t\t"TopicA":{\n\t\t\t"groupFilterData":{\n\t\t\t\t"g1":{'
    b'\n\t\t\t\t\t"bloomFilterData":{\n\t\t\t\t\t\t"bitNum":112,\n\t\t\t\t\t\t"bitPos":[19,13,46]'
    b'\n\t\t\t\t\t},\n\t\t\t\t\t"bornTime":1700000000000,\n\t\t\t\t\t"clientVersion":100,'
    b'\n\t\t\t\t\t"consumerGroup":"g1",\n\t\t\t\t\t"dead":false,\n\t\t\t\t\t"deadTime":0,'
    b'\n\t\t\t\t\t"expression":"a > 1",\n\t\t\t\t\t"expressionType":"SQL92",'
    b'\n\t\t\t\t\t"topic":"TopicA"\n\t\t\t\t}\n\t\t\t},\n\t\t\t"topic":"TopicA"\n\t\t}\n\t}\n}'
)
"""As ConsumerFilterManager of 5.3.3 writes it."""


class World:
    """A table, its disk, and a clock that is set by hand."""

    def __init__(self, content: bytes = b"", now_ms: int = BORN_MS) -> None:
        self.disk = SimulatedDisk()
        self.now_ms = now_ms
        if content:
            self.disk.replace(PATH, content)
        self.table = self.reopened()

    def reopened(self) -> ConsumerFilterTable:
        return ConsumerFilterTable(TableFile(self.disk, PATH), lambda: self.now_ms)

    @property
    def written(self) -> bytes:
        return self.disk.read(PATH) or b""

    def dead_since(self, topic: str = "TopicA", group: str = "g1") -> int | None:
        """When it died; None while it is alive."""
        data = self.table.get(topic, group)
        assert data is not None
        assert data.dead == (data.dead_time >= data.born_time)
        return data.dead_time if data.dead else None


def sql(
    expression: str = "a > 1", *, topic: str = "TopicA", version: int = 100
) -> SubscriptionFilter:
    return SubscriptionFilter(topic, expression, "SQL92", version)


def test_a_subscription_is_written_byte_for_byte_as_rocketmq_does() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.save()
    assert world.written == GOLDEN


def test_the_consumers_of_a_loaded_subscription_left_thirty_seconds_ago() -> None:
    world = World(GOLDEN, now_ms=BORN_MS + 100_000)
    assert world.dead_since() == BORN_MS + 70_000


def test_but_not_before_it_was_born() -> None:
    world = World(GOLDEN, now_ms=BORN_MS + 10_000)
    assert world.dead_since() == BORN_MS


def test_a_subscription_that_was_dead_keeps_its_time() -> None:
    dead = GOLDEN.replace(b'"deadTime":0', b'"deadTime":1700000000500')
    world = World(dead, now_ms=BORN_MS + 100_000)
    assert world.dead_since() == BORN_MS + 500


def test_the_word_dead_in_a_file_means_nothing() -> None:
    wrong = GOLDEN.replace(b'"deadTime":0', b'"deadTime":7').replace(b"false", b"true")
    assert World(wrong).dead_since() is None


@pytest.mark.parametrize(
    "bloom",
    [
        b'"bitNum":120,"bitPos":[19,13,46]',
        b'"bitNum":112,"bitPos":[19,13]',
        b'"bitNum":112,"bitPos":[19,13,47]',
        b'"bitNum":112,"bitPos":[19,13,1000000]',
        b"",
    ],
    ids=["length", "count", "other bits", "no such bit", "none"],
)
def test_bits_of_another_filter_drop_the_whole_file(bloom: bytes) -> None:
    good = (
        b'"TopicB":{"groupFilterData":{"g":{"consumerGroup":"g","topic":"TopicB","expression":"x",'
    )
    good += b'"expressionType":"SQL92","bloomFilterData":'
    bits = msgspec.json.encode(list(BloomFilter().positions("g#TopicB")))
    good += b'{"bitNum":112,"bitPos":' + bits + b"}}}}"
    bad = msgspec.json.decode(GOLDEN)["filterDataByTopic"]["TopicA"]
    bad["groupFilterData"]["g1"]["bloomFilterData"] = msgspec.Raw(b"{" + bloom + b"}")
    world = World(b'{"filterDataByTopic":{' + good + b"}}")
    assert world.table.get("TopicB", "g") is not None
    world = World(
        b'{"filterDataByTopic":{' + good + b',"TopicA":' + msgspec.json.encode(bad) + b"}}"
    )
    assert world.table.get("TopicB", "g") is None
    assert world.table.get("TopicA", "g1") is None


def test_a_consumer_that_comes_back_revives_its_subscription() -> None:
    world = World(GOLDEN, now_ms=BORN_MS + 100_000)
    world.table.register("g1", [sql()])
    assert world.dead_since() is None
    data = world.table.get("TopicA", "g1")
    assert data is not None
    assert data.born_time == BORN_MS, "it is still the same"


def test_a_changed_expression_is_born_anew() -> None:
    world = World(GOLDEN, now_ms=BORN_MS + 100_000)
    world.table.register("g1", [sql("b < 2", version=101)])
    data = world.table.get("TopicA", "g1")
    assert data is not None
    assert (data.expression, data.born_time, data.dead) == ("b < 2", BORN_MS + 100_000, False)


def test_a_client_that_is_behind_changes_nothing() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.register("g1", [sql("b < 2", version=99)])
    world.table.register("g1", [sql("b < 2", version=100)])
    data = world.table.get("TopicA", "g1")
    assert data is not None
    assert data.expression == "a > 1"


def test_a_newer_client_with_the_same_expression_only_moves_the_version() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.now_ms += 5
    world.table.register("g1", [sql(version=200)])
    data = world.table.get("TopicA", "g1")
    assert data is not None
    assert (data.client_version, data.born_time) == (200, BORN_MS)


def test_a_topic_that_is_no_longer_subscribed_to_is_dead() -> None:
    world = World()
    world.table.register("g1", [sql(), sql(topic="TopicB")])
    world.now_ms += 9
    world.table.register("g1", [sql()])
    assert world.dead_since() is None
    assert world.dead_since("TopicB") == BORN_MS + 9


def test_the_last_consumer_of_a_group_takes_its_subscriptions_along() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.register("g2", [sql()])
    world.now_ms += 9
    world.table.unregister("g1")
    world.now_ms += 9
    world.table.unregister("g1")
    assert world.dead_since() == BORN_MS + 9
    assert world.dead_since(group="g2") is None
    assert len(world.table.of_topic("TopicA")) == 2
    assert world.table.of_topic("TopicB") == []


def test_tags_are_not_kept() -> None:
    world = World()
    world.table.register("g1", [SubscriptionFilter("TopicA", "TagA", "TAG", 1), sql("")])
    assert world.table.get("TopicA", "g1") is None


def test_who_is_dead_for_a_day_is_forgotten_at_the_next_save() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.unregister("g1")
    world.now_ms += FILTER_DATA_CLEAN_TIME_SPAN_MS - 1
    world.table.save()
    assert b"TopicA" in world.written
    world.now_ms += 1
    world.table.save()
    assert world.written == b'{\n\t"filterDataByTopic":{}\n}'


def test_nothing_is_written_when_nothing_changed() -> None:
    world = World()
    world.table.save()
    world.table.register("g1", [sql()])
    world.table.save()
    world.disk.remove(PATH)
    world.table.register("g1", [sql()])
    world.table.save()
    assert world.written == b""


def test_it_comes_back_after_a_restart() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.save()
    world.table = world.reopened()
    assert world.dead_since() == BORN_MS


def test_what_cannot_be_compiled_is_not_taken_and_removes_what_was_there() -> None:
    world = World()
    world.table.register("g1", [sql("a >")])
    world.table.register("g1", [SubscriptionFilter("TopicA", "a > 1", "XPATH", 1)])
    assert world.table.get("TopicA", "g1") is None
    world.table.register("g1", [sql(version=100)])
    world.table.register("g1", [sql("a >", version=101)])
    assert world.table.get("TopicA", "g1") is None
    world.table.save()
    assert world.written == b'{\n\t"filterDataByTopic":{}\n}'


def test_a_registered_filter_is_put_to_messages() -> None:
    world = World()
    world.table.register("g1", [sql()])
    found = world.table.filter_of("TopicA", "g1")
    assert found is not None
    assert found.matches(b"a\x012\x02")
    assert not found.matches(b"a\x011\x02")


def bits_of(groups: list[str]) -> bytes:
    bloom = BloomFilter()
    return bloom.bit_map([bloom.positions(f"{group}#TopicA") for group in groups])


def test_a_bit_map_has_the_bits_of_all_who_want_the_message_dead_or_alive() -> None:
    world = World()
    for group, expression in (("g1", "a > 1"), ("g2", "a > 2"), ("g3", "b = 1"), ("g4", "a > 'x'")):
        world.table.register(group, [sql(expression)])
    world.table.unregister("g1")
    assert world.table.bit_map("TopicA", b"a\x015\x02") == bits_of(["g1", "g2"])
    assert world.table.bit_map("TopicA", b"a\x012\x02") == bits_of(["g1"])
    assert world.table.bit_map("TopicA", b"") == bytes(14)
    assert world.table.bit_map("TopicB", b"a\x012\x02") == b""


def test_who_would_cost_too_much_may_want_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for group in ("g1", "g2", "g3"):
        world.table.register(group, [sql("a > 1")])
    found = world.table.filter_of("TopicA", "g1")
    assert found is not None
    monkeypatch.setattr(table_module, "BIT_MAP_COST_MAX", found.cost)
    assert world.table.bit_map("TopicA", b"") == bits_of(["g2", "g3"])


def test_a_bit_map_counts_from_where_the_filter_was_registered() -> None:
    world = World()
    log_end = [100]
    table = ConsumerFilterTable(
        TableFile(world.disk, PATH), lambda: BORN_MS, log_end=lambda: log_end[0], uses_bit_maps=True
    )
    table.register("g1", [sql()])
    found = table.filter_of("TopicA", "g1")
    assert found is not None
    assert found.uses_bit_maps
    none, hit = CqExtUnit(0, 0, bytes(14)), CqExtUnit(0, 0, bits_of(["g1"]))
    assert found.may_match(99, none)
    assert not found.may_match(100, none)
    assert found.may_match(100, hit)
    assert found.may_match(100, CqExtUnit(0, 0))
    log_end[0] = 200
    table.register("g1", [sql(version=101)])
    assert table.filter_of("TopicA", "g1") is found, "it is still the same"
    table.register("g1", [sql("a > 2", version=102)])
    found = table.filter_of("TopicA", "g1")
    assert found is not None
    assert found.may_match(199, none)


def test_there_is_room_for_so_many_and_the_dead_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "FILTERS_MAX", 2)
    world = World()
    for group in ("g1", "g2", "g3"):
        world.table.register(group, [sql()])
    assert [world.table.get("TopicA", f"g{number}") is None for number in (1, 2, 3)] == [
        *(False, False, True),
    ]
    world.table.unregister("g1")
    world.table.register("g3", [sql()])
    assert [world.table.get("TopicA", f"g{number}") is None for number in (1, 2, 3)] == [
        *(True, False, False),
    ]


def test_so_many_terms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "FILTER_TERMS_MAX", 10)
    world = World()
    world.table.register("g1", [sql(" OR ".join(["a = 1"] * 4))])
    world.table.register("g2", [sql()])
    assert world.table.get("TopicA", "g1") is None
    assert world.table.get("TopicA", "g2") is not None


async def test_it_is_saved_every_few_seconds(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    world.table.register("g1", [sql()])
    with trio.move_on_after(SAVE_SECONDS + 1):
        await world.table.run()
    assert world.written == GOLDEN


def test_a_full_disk_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.table.register("g1", [sql()])

    def fail(*_: object) -> None:
        raise StoreFullError("no room", path=PATH)

    monkeypatch.setattr(TableFile, "save", fail)
    for _ in range(2):
        world.table.save_or_tell()
    lines = logged(caplog, "node.tables.consumer_filter_table")
    assert [str(line[0]) for line in lines] == ["no room"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["filterDataByTopic", "groupFilterData", "bloomFilterData", "bitPos"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_file_is_a_table_or_the_error(content: object) -> None:
    with suppress(TableFileError):
        World(msgspec.json.encode(content)).table.save()


def test_what_was_removed_gives_back_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is dead is counted as such once: it makes room, and is forgotten after a day."""
    monkeypatch.setattr(table_module, "FILTER_TERMS_MAX", 3)
    world = World()
    for version in range(100, 120):
        world.table.register("g1", [sql(f"a = {version}", version=version)])
        assert world.table.get("TopicA", "g1") is not None
        world.table.unregister("g1")
    world.table.register("g2", [sql("a = 1")])
    assert world.table.get("TopicA", "g2") is not None, "all of the room is its"
    assert world.table.get("TopicA", "g1") is None


def test_times_that_change_are_written_and_what_cannot_be_written_is_tried_again() -> None:
    world = World()
    world.table.register("g1", [sql()])
    world.table.save()
    world.now_ms += 5_000
    world.table.unregister("g1")
    world.disk.writes_fail = True
    with pytest.raises(StoreError):
        world.table.save()
    world.disk.writes_fail = False
    world.table.save()
    assert world.dead_since() is not None
    dead_ms = str(world.dead_since()).encode()
    assert dead_ms in world.written
