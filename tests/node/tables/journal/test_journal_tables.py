import pytest

from ha.results import Refusal
from node.errors import RequestError
from node.tables.journal.journal_file import JournalFile
from node.tables.journal.journal_tables import JournalTables, SavedTables
from node.tables.replicated_deliveries import DelayPart, TimersPart
from node.tables.replicated_offsets import OffsetsPart
from node.tables.replicated_topics import TopicsPart
from store.delayed.timer_place import TimerPlace
from tandem.wire.request_headers import TopicConfig
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import BROKER, NOW_MS, Broker, FakeReplication
from tests.node.tables.journal.journal_world import offsets_of, tables_of

FOREVER = 1e9


class Tables:
    """The tables of one node and what they stand on."""

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or Broker(is_fenced=True, topics=())
        self.replication = FakeReplication()
        self.saved = SavedTables(self.broker.disk, "s", lambda: NOW_MS)
        self.it = JournalTables(
            self.saved,
            self.broker.store,
            self.replication,
            born_host=BROKER.packed,
            wall_clock_ms=lambda: NOW_MS,
        )

    def open(self) -> None:
        self.it.open([])
        self.confirm()

    def confirm(self) -> None:
        store = self.broker.store
        store.announce()
        store.confirm(store.max_physical_offset)
        self.it.journal.catch_up()


async def test_a_topic_shows_at_once_and_stands_when_it_is_confirmed() -> None:
    tables, settled = Tables(), list[str | None]()
    tables.open()
    tables.it.change_topics(TopicConfig(topic_name="T"))
    assert tables.it.topics.get("T") is not None
    tables.it.when_settled(FOREVER, settled.append)
    tables.it.end_round()
    assert settled == []
    tables.confirm()
    assert settled == [None]


async def test_a_topic_that_is_like_that_already_is_not_written_again() -> None:
    tables = Tables()
    tables.open()
    tables.it.change_topics(TopicConfig(topic_name="T"))
    end = tables.broker.store.max_physical_offset
    tables.it.change_topics(TopicConfig(topic_name="T"))
    assert tables.broker.store.max_physical_offset == end


async def test_an_offset_shows_when_it_is_confirmed() -> None:
    tables = Tables()
    tables.open()
    tables.it.commit("g", "T", 0, 5)
    tables.it.when_settled(FOREVER, lambda _: None)
    tables.it.end_round()
    assert tables.it.offsets.query("g", "T", 0) is None
    tables.confirm()
    assert tables.it.offsets.query("g", "T", 0) == 5


async def test_groups_and_deletions_are_the_same_on_every_node() -> None:
    tables = Tables()
    tables.open()
    tables.it.change_topics(TopicConfig(topic_name="T"), TopicConfig(topic_name="U"))
    tables.it.change_groups(SubscriptionGroupConfig("g", retry_max_times=3))
    tables.it.change_groups(SubscriptionGroupConfig("h"))
    tables.it.forbid("h", "T", 1)
    for topic in ("T", "U"):
        for group in ("g", "h"):
            tables.it.commit(group, topic, 0, 5)
    tables.it.when_settled(FOREVER, lambda _: None)
    tables.it.end_round()
    tables.it.delete_topic("T")
    tables.it.delete_group("g", clean_offsets=True)
    assert (tables.it.groups.get("g"), tables.it.topics.get("T")) == (None, None)
    tables.confirm()
    tables.it.save()
    other = Tables(tables.broker)
    for it in (tables.it, other.it):
        assert (it.groups.get("g"), it.topics.get("T")) == (None, None)
        assert it.groups.get("h") == SubscriptionGroupConfig("h")
        assert it.groups.forbidden("h", "T") == 1
        assert it.offsets.offsets() == {"U@h": {0: 5}}
    tables.it.commit("g", "U", 0, 5)
    tables.it.when_settled(FOREVER, lambda _: None)
    tables.it.end_round()
    tables.confirm()
    assert tables.it.offsets.query("g", "U", 0) == 5


async def test_a_commit_that_was_gathered_does_not_bring_back_what_is_deleted() -> None:
    tables = Tables()
    tables.open()
    tables.it.change_topics(TopicConfig(topic_name="T"))
    tables.it.commit("g", "T", 0, 5)
    tables.it.delete_topic("T")
    tables.it.when_settled(FOREVER, lambda _: None)
    tables.it.end_round()
    tables.confirm()
    assert tables.it.offsets.offsets() == {}


async def test_a_group_that_is_like_that_already_is_not_written_again() -> None:
    tables = Tables()
    tables.open()
    tables.it.change_groups(SubscriptionGroupConfig("g"))
    end = tables.broker.store.max_physical_offset
    tables.it.change_groups(SubscriptionGroupConfig("g"))
    tables.it.change_groups_soon(SubscriptionGroupConfig("g"))
    assert tables.broker.store.max_physical_offset == end


async def test_a_node_that_is_not_the_master_ignores_commits_of_pulls() -> None:
    tables = Tables()
    tables.it.commit("g", "T", 0, 5)
    tables.it.when_settled(FOREVER, lambda _: None)
    tables.it.end_round()
    assert tables.broker.store.max_physical_offset == 0


async def test_nobody_but_the_master_takes_or_tells() -> None:
    tables = Tables()
    tables.replication.demote("a1 is the master")
    for check in (tables.it.check_change, tables.it.check_commit, tables.it.check_query):
        with pytest.raises(RequestError) as caught:
            check()
        assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_node_that_is_not_the_master_tells_nothing_though_nothing_refuses_puts() -> None:
    tables = Tables()
    tables.replication.is_master = False
    with pytest.raises(RequestError) as caught:
        tables.it.check_query()
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_master_short_of_replicas_tells_what_it_has() -> None:
    tables = Tables()
    tables.replication.refused = Refusal(1, "1 of 2", is_short=True)
    tables.it.check_query()
    with pytest.raises(RequestError) as caught:
        tables.it.check_commit()
    assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_what_the_journals_file_says_wins_over_the_copies() -> None:
    broker = Broker(is_fenced=True, topics=("Old",))
    JournalFile(broker.disk, "s").save(
        0, tables_of(TopicsPart({"New": TopicConfig("New")}), OffsetsPart({"New@g": {0: 3}}))
    )
    tables = Tables(broker)
    assert tables.it.topics.get("Old") is None
    assert tables.it.topics.get("New") is not None
    assert tables.it.offsets.query("g", "New", 0) == 3


async def test_a_log_that_lost_records_of_the_journal_takes_offsets_back() -> None:
    broker = Broker(is_fenced=True, topics=())
    parts = TopicsPart({"T": TopicConfig("T")}), OffsetsPart({"T@g": {0: 3}})
    JournalFile(broker.disk, "s").save(9, tables_of(*parts))
    tables = Tables(broker)
    assert tables.it.offsets.query("g", "T", 0) is None
    assert tables.it.topics.get("T") is not None
    assert tables.it.journal.applier.position == 0
    saved = JournalFile(broker.disk, "s").load()
    assert saved is not None
    assert (saved.position, offsets_of(saved.tables)) == (0, {}), (
        "others may fill the log before the next save"
    )


async def test_a_new_master_delivers_from_where_the_journal_says() -> None:
    """What its own file says beyond that was delivered by a master that was cut off."""
    broker = Broker(is_fenced=True, topics=())
    JournalFile(broker.disk, "s").save(0, tables_of(DelayPart({1: 4, 300: 2})))
    tables = Tables(broker)
    tables.saved.progress.delay.update(1, 99)
    tables.saved.progress.delay.update(2, 7)
    delay = tables.it.open([]).delay
    assert (delay.query(1), delay.query(2)) == (4, 0)
    assert delay.progress() == {1: 4, 300: 2}, "a level that was taken out as well"


async def test_a_new_master_knows_where_the_log_ended_when_its_progress_was_noted() -> None:
    """What was delivered before that is known; a message of the same content is another one."""
    broker = Broker(is_fenced=True, topics=())
    place = TimerPlace(1, 2, 3, 4)
    parts = DelayPart({1: 4}, 70), TimersPart(place, 80)
    JournalFile(broker.disk, "s").save(0, tables_of(*parts))
    progress = Tables(broker).it.open([])
    assert (progress.delay_at, progress.timers, progress.timers_at) == (70, place, 80)


async def test_whoever_waits_is_answered_when_the_tables_close() -> None:
    tables, settled = Tables(), list[str | None]()
    tables.open()
    tables.it.change_topics(TopicConfig(topic_name="T"))
    tables.it.when_settled(FOREVER, settled.append)
    tables.it.end_round()
    tables.it.close("a0 is stopping")
    assert settled == ["a0 is stopping; the change may or may not stand"]
