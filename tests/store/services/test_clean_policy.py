import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.config import StoreConfig
from store.running_flags import RunningFlag
from store.services.clean_policy import (
    HOUR_MS,
    MANUAL_DELETE_RUNS,
    CleanDecision,
    CleanPolicy,
    DirectoryUsage,
    Watermarks,
    used_percent,
    utc_hour,
)
from tests.support.reasons import words

MIDNIGHT_MS = 1_700_006_400_000 - 1_700_006_400_000 % (24 * HOUR_MS)
STAYS = "stays as it is"
LOG, OTHER_LOG, QUEUES = "/store/commitlog", "/more/commitlog", "/store/consumequeue"


def policy(
    *, delete_when: tuple[int, ...] = (4,), forcibly: bool = True, east_hours: int = 0
) -> CleanPolicy:
    return CleanPolicy(
        delete_when=delete_when,
        watermarks=Watermarks.of(StoreConfig(directory="/store")),
        clean_file_forcibly_enable=forcibly,
        local_hour=lambda now_ms: utc_hour(now_ms + east_hours * HOUR_MS),
    )


def decide(
    log: int | tuple[int, int] = 10, queues: int = 10, *, by: CleanPolicy | None = None
) -> CleanDecision:
    percents = log if isinstance(log, tuple) else (log,)
    usages = [DirectoryUsage(*pair) for pair in zip((LOG, OTHER_LOG), percents, strict=False)]
    return (by or policy()).decide(MIDNIGHT_MS, usages, DirectoryUsage(QUEUES, queues))


def test_with_room_and_at_no_special_hour_nothing_is_deleted() -> None:
    cleared: dict[RunningFlag, str | None] = dict.fromkeys(
        (RunningFlag.DISK_FULL, RunningFlag.LOGIC_DISK_FULL)
    )
    assert decide() == CleanDecision("", False, False, cleared, frozenset())  # noqa: FBT003


@pytest.mark.parametrize(
    ("percent", "deletes", "immediately", "refused"),
    [
        (75, False, False, False),
        (76, True, False, False),
        (85, True, False, False),
        (86, True, True, None),
        (90, True, True, None),
        (91, True, True, True),
        (100, True, True, True),
        (-1, True, False, False),
        (0, False, False, False),
    ],
)
@pytest.mark.parametrize("flag", [RunningFlag.DISK_FULL, RunningFlag.LOGIC_DISK_FULL])
def test_each_watermark_is_crossed_above_its_percent(
    percent: int,
    deletes: bool,  # noqa: FBT001
    immediately: bool,  # noqa: FBT001
    refused: bool | None,  # noqa: FBT001
    flag: RunningFlag,
) -> None:
    """CleanCommitLogService.isSpaceToDelete; None: the flag stays as it is."""
    is_log = flag is RunningFlag.DISK_FULL
    decision = decide(log=percent) if is_log else decide(queues=percent)
    assert bool(decision.reason) == decision.space_is_short == deletes
    assert decision.immediately == immediately
    assert decision.refusals.get(flag, STAYS) == {
        False: None,
        True: f"the disk of {LOG if is_log else QUEUES} is {percent} % full, more than"
        " disk_space_warning_level_ratio (90) allows; messages are taken again at 85 %: free space"
        " there",
        None: STAYS,
    }.get(refused)


def test_the_emptiest_of_several_directories_counts() -> None:
    decision = decide(log=(99, 40))
    assert not decision.reason
    assert decision.refusals[RunningFlag.DISK_FULL] is None
    assert decision.full_directories == {LOG}
    assert OTHER_LOG in words(decide(log=(99, 92)).refusals[RunningFlag.DISK_FULL])


def test_a_directory_of_unknown_use_counts_as_the_emptiest_and_as_short() -> None:
    decision = decide(log=(50, -1))
    assert decision.space_is_short
    assert not decision.immediately


def test_the_queues_are_looked_at_also_when_the_log_is_short_of_space() -> None:
    """RocketMQ does not, and leaves a flag standing whose reason has gone."""
    assert decide(log=95, queues=10).refusals[RunningFlag.LOGIC_DISK_FULL] is None
    assert decide(log=95, queues=95).refusals.keys() == {
        RunningFlag.DISK_FULL,
        RunningFlag.LOGIC_DISK_FULL,
    }


def test_age_is_always_respected_if_forcible_cleaning_is_off() -> None:
    decision = decide(log=95, by=policy(forcibly=False))
    assert decision.space_is_short
    assert not decision.immediately


@pytest.mark.parametrize(
    ("now_ms", "deletes"),
    [
        (MIDNIGHT_MS + 4 * HOUR_MS - 1, False),
        (MIDNIGHT_MS + 4 * HOUR_MS, True),
        (MIDNIGHT_MS + 5 * HOUR_MS - 1, True),
        (MIDNIGHT_MS + 5 * HOUR_MS, False),
        (MIDNIGHT_MS + 23 * HOUR_MS, True),
        (MIDNIGHT_MS + 24 * HOUR_MS, False),
    ],
)
def test_an_hour_begins_and_ends_on_the_millisecond(now_ms: int, deletes: bool) -> None:  # noqa: FBT001
    room = DirectoryUsage(LOG, 1)
    decision = policy(delete_when=(4, 23)).decide(now_ms, [room], room)
    assert bool(decision.reason) == deletes
    assert not decision.space_is_short


def test_the_hour_is_that_of_the_place() -> None:
    room = DirectoryUsage(LOG, 1)
    decision = policy(east_hours=8).decide(MIDNIGHT_MS + 20 * HOUR_MS, [room], room)
    assert (bool(decision.reason), decision.space_is_short) == (True, False)


def test_what_is_asked_for_by_hand_lasts_twenty_runs() -> None:
    cleaner = policy()
    cleaner.delete_manually()
    deletes = [bool(decide(by=cleaner).reason) for _ in range(MANUAL_DELETE_RUNS + 1)]
    assert deletes == [True] * 20 + [False]


def test_all_reasons_are_told() -> None:
    cleaner = policy(delete_when=(0,))
    cleaner.delete_manually()
    assert decide(log=76, queues=80, by=cleaner).reason == (
        "it is the hour 0 of delete_when, asked for by hand,"
        f" the disk of {LOG} is 76 % full, the disk of {QUEUES} is 80 % full"
    )


@pytest.mark.parametrize(
    ("given", "used"),
    [((5, 5, 5), (10, 30, 35)), ((75, 85, 90), (75, 85, 90)), ((96, 101, 101), (95, 100, 100))],
)
def test_watermarks_are_moved_into_their_ranges(
    given: tuple[int, int, int], used: tuple[int, int, int]
) -> None:
    config = StoreConfig(
        directory="/store",
        disk_max_used_space_ratio=given[0],
        disk_space_clean_forcibly_ratio=given[1],
        disk_space_warning_level_ratio=given[2],
    )
    assert Watermarks.of(config) == Watermarks(*used)


def test_at_a_hundred_a_watermark_is_never_crossed() -> None:
    cleaner = CleanPolicy(
        delete_when=(),
        watermarks=Watermarks(95, 100, 100),
        clean_file_forcibly_enable=True,
        local_hour=utc_hour,
    )
    decision = decide(log=100, queues=100, by=cleaner)
    assert not decision.immediately
    assert set(decision.refusals.values()) == {None}


@pytest.mark.parametrize(
    ("used", "usable", "percent"),
    [(0, 0, -1), (0, 5, 0), (1, 999, 1), (10, 990, 1), (11, 989, 2), (899, 101, 90), (5, 0, 100)],
)
def test_percents_are_rounded_up(used: int, usable: int, percent: int) -> None:
    """UtilAll.getDiskPartitionSpaceUsedPercent."""
    assert used_percent(used, usable) == percent


@given(st.integers(-1, 100), st.integers(-1, 100))
def test_who_refuses_messages_also_deletes(log: int, queues: int) -> None:
    decision = decide(log=log, queues=queues)
    if any(decision.refusals.values()):
        assert decision.reason
        assert decision.immediately
