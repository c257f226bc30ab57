from pathlib import Path

from tandem.cluster_file.choices import GroupKind
from tandem.drill.recording import Recording
from tandem.drill.replication import SlaveReport
from tandem.drill.watched_group import NO_BOUND
from tandem.drill.workload import Clock
from tandem.wire.group_state import GroupState, LeaderRecord
from tests.tandem.drill import samples

FIRST, SECOND, _ = samples.NODES


def of_a_fenced_group() -> Recording:
    return Recording(Clock(0.0, 0.0), samples.group(GroupKind.FENCED))


def test_the_audit_goes_by_the_last_master_and_what_it_had_confirmed() -> None:
    recording = of_a_fenced_group()
    watched = recording.watched
    assert watched is not None
    state = GroupState(epoch=2, master=SECOND, isr={}, min_isr=2)
    watched.coordinator_said(0, 0, state, LeaderRecord(node=SECOND, session="s", epoch=2))
    watched.node_said(0, 0, SECOND, samples.status(SECOND, SECOND, 2))

    recording.note_end()

    assert (recording.master, recording.confirm) == (SECOND, 1000)


def test_after_a_play_that_ended_early_only_what_all_have_confirmed_is_compared() -> None:
    recording = of_a_fenced_group()
    assert recording.watched is not None
    recording.stopped_because = "it could not go on"
    recording.watched.confirms = {FIRST: 500, SECOND: 300}

    recording.note_end()

    assert (recording.master, recording.confirm) == (FIRST, 300)


def test_the_audit_of_a_classic_group_goes_by_its_master_and_compares_everything() -> None:
    recording = Recording(Clock(0.0, 0.0), samples.group(GroupKind.CLASSIC))

    recording.note_end()

    assert (recording.master, recording.confirm, list(recording.history)) == (FIRST, None, [])


def test_nodes_are_known_by_address_in_a_classic_group_and_by_name_in_a_fenced_one() -> None:
    classic = Recording(Clock(0.0, 0.0), samples.group(GroupKind.CLASSIC))
    assert list(classic.replication.states) == [*samples.NODES[1:]]
    assert list(of_a_fenced_group().replication.states) == [*samples.NODES]


def test_a_broker_that_follows_nobody_when_a_drill_ends_early_is_not_compared() -> None:
    def apart(stopped_because: str, confirm: int) -> list[str]:
        recording = of_a_fenced_group()
        assert recording.watched is not None
        recording.stopped_because = stopped_because
        recording.watched.confirms = dict.fromkeys(samples.NODES, confirm)
        recording.replication.sampled(1.0, 900, [SlaveReport(SECOND, 900, 0)])
        recording.note_end()
        stores = {node: Path(node) for node in samples.NODES}
        assert recording.master == FIRST
        return [node for node in stores if node not in recording.compared(stores)]

    assert apart("it could not go on", NO_BOUND) == [samples.NODES[2]]
    assert apart("", NO_BOUND) == []
    assert apart("it could not go on", 500) == [], "what all have is known"
