from store.running_flags import RunningFlag, RunningFlags, StoreRefusal
from tests.support.reasons import words


def test_reasons_come_and_go() -> None:
    flags = RunningFlags()
    assert flags.refusal is None
    flags.set(RunningFlag.DISK_FULL, "the disk is full")
    flags.set(RunningFlag.NOT_WRITEABLE, "a sync failed")
    assert words(flags.refusal) == "a sync failed; the disk is full"
    flags.clear(RunningFlag.NOT_WRITEABLE)
    assert words(flags.refusal) == "the disk is full"
    flags.clear(RunningFlag.DISK_FULL)
    flags.clear(RunningFlag.DISK_FULL)
    assert flags.refusal is None


def test_a_flag_keeps_its_first_reason() -> None:
    flags = RunningFlags()
    flags.set(RunningFlag.NOT_WRITEABLE, "first")
    flags.set(RunningFlag.NOT_WRITEABLE, "second")
    assert words(flags.refusal) == "first"


def test_a_full_disk_does_not_stop_the_dispatch_and_a_failed_one_does() -> None:
    flags = RunningFlags()
    flags.set(RunningFlag.DISK_FULL, "full")
    before = flags.may_dispatch
    flags.set(RunningFlag.NOT_WRITEABLE, "failed")
    assert (before, flags.may_dispatch) == (True, False)


def test_what_is_wrong_with_the_disks_is_told_apart_from_the_rest() -> None:
    flags = RunningFlags()
    flags.set(RunningFlag.SLAVE, "this node is a slave")
    flags.set(RunningFlag.FENCED, "another node is master")
    assert flags.disk_trouble is None
    flags.set(RunningFlag.DISK_FULL, "full")
    flags.set(RunningFlag.NOT_WRITEABLE, "failed")
    assert flags.disk_trouble == StoreRefusal(
        RunningFlag.DISK_FULL | RunningFlag.NOT_WRITEABLE, "failed; full"
    )
