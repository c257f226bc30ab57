from node.simulated.disk import SimulatedDisk
from node.tables.node_table import TableFiles
from node.tables.replicated_deliveries import (
    DelayPart,
    DelayProgress,
    DelayTable,
    TimerProgress,
    TimersPart,
    TimersTable,
)
from node.tables.table_part import P, TablePart
from store.delayed.timer_place import TimerPlace
from tests.node.doubles import NOW_MS

PLACE = TimerPlace(1, 2, 3, 4)


class Written:
    """What was written so far."""

    def __init__(self, part: TablePart) -> None:
        self.part = part

    def __call__(self, kind: type[P], /) -> P:
        assert isinstance(self.part, kind)
        return self.part


def files() -> TableFiles:
    return TableFiles(SimulatedDisk(), "s", lambda: NOW_MS, is_copy=True, is_needed=False)


def test_a_new_master_forgets_what_its_own_file_says_beyond_the_journal() -> None:
    own = files()
    own.progress.delay.update(1, 99)
    own.progress.delay.update(2, 7)
    DelayTable(own).take_up(DelayPart({1: 4, 3: 5}, 70))
    assert (own.progress.delay.progress(), own.progress.delay_at) == ({1: 4, 3: 5}, 70)


def test_the_progress_of_levels_is_written_when_it_is_news() -> None:
    own = files()
    table = DelayTable(own)
    assert table.progress(Written(DelayPart()), 9) is None
    own.progress.delay.update(1, 4)
    own.progress.delay.update(2, 5)
    news = table.progress(Written(DelayPart({2: 5})), 9)
    assert news == DelayProgress({1: 4}, at=9)
    assert table.progress(Written(DelayPart({1: 4, 2: 5})), 9) is None


def test_the_place_of_the_timers_is_written_when_it_is_news() -> None:
    own = files()
    table = TimersTable(own)
    assert table.progress(Written(TimersPart()), 9) is None
    own.progress.timers = TimerPlace()
    assert table.progress(Written(TimersPart()), 9) is None
    own.progress.timers = PLACE
    assert table.progress(Written(TimersPart()), 9) == TimerProgress(PLACE, at=9)
    assert table.progress(Written(TimersPart(PLACE)), 9) is None
    table.take_up(TimersPart(None, 3))
    left: tuple[object, int] = (own.progress.timers, own.progress.timers_at)
    assert left == (None, 3)


def test_parts_of_a_snapshot_after_the_first_say_nothing_of_deliveries() -> None:
    delay, timers = DelayPart(), TimersPart()
    delay.add({"delay": {1: 4}, "delay_at": 7})
    delay.add({"delay": {}, "delay_at": 0})
    timers.add({"timers": PLACE, "timers_at": 7})
    timers.add({"timers": None, "timers_at": 0})
    assert (delay.delay, delay.delay_at) == ({1: 4}, 7)
    assert (timers.timers, timers.timers_at) == (PLACE, 7)
