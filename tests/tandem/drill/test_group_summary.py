import msgspec

from tandem.cluster_file.choices import GroupKind
from tandem.drill.group_summary import (
    DISTURBED,
    NOT_AUDITED,
    GroupSummary,
    broken_of,
    examples_of,
    summarise_group,
)
from tandem.drill.preflight import Group
from tandem.drill.recording import Recording
from tandem.drill.undisturbed import CalmTime
from tandem.drill.workload import Clock
from tandem.spark.audit.rules import AuditSummary
from tests.tandem.drill import samples
from tests.tandem.drill.ledger_samples import STARTED_MS, send


def other() -> Group:
    return msgspec.structs.replace(samples.group(GroupKind.FENCED), name="broker-b")


def summarised(
    *,
    is_hurt: bool = False,
    found: AuditSummary | None = None,
    audited: bool = True,
    disorder: tuple[str, ...] = (),
    slow_ms: float = 5.0,
    calm: bool = True,
    stopped_because: str = "",
) -> GroupSummary:
    """What a drill of two groups says of one of them."""
    whole = Recording(Clock(0.0, STARTED_MS), samples.group(GroupKind.FENCED))
    beside = Recording(whole.clock, other())
    whole.beside = {"broker-b": beside}
    whole.stopped_because = stopped_because
    own = whole if is_hurt else beside
    own.calm = [CalmTime("a", 10.0, 20.0)] if calm else []
    own.disorder = list(disorder)
    plan = samples.plan(kind=GroupKind.FENCED)
    return summarise_group(
        plan if is_hurt else plan.for_group(other(), {}),
        whole,
        iter([send(1.0, 2_000.0), send(11.0, slow_ms)]),
        slower_than_ms=1_500.0,
        audit=(found or samples.audit()) if audited else None,
    )


def test_a_sound_group_has_figures_and_nothing_broken() -> None:
    found = summarised()
    assert (found.name, found.is_hurt, found.sends) == ("broker-b", False, 2)
    assert found.sends_by_status == {"SEND_OK": 2}
    assert (found.slowest_ms, found.calm and found.calm.slowest_ms) == (2_000.0, 5.0)
    assert (found.sync_acknowledged, found.byte_identical) == (51, True)
    assert found.broken == {}


def test_each_count_of_its_audit_is_its_own() -> None:
    found = summarised(found=samples.audit(sync_lost=2, second_slave_equal=False))
    assert found.broken == {"sync_lost": 2, "slaves_not_identical": 1}
    assert broken_of([found]) == [
        ("broker-b: sync_lost", 2),
        ("broker-b: slaves_not_identical", 1),
    ]
    assert summarised(audited=False).broken == {NOT_AUDITED: 1}
    assert summarised(disorder=("a", "b")).broken == {"read_out_of_order": 2}


def test_a_log_that_had_no_time_to_catch_up_is_not_broken() -> None:
    shorter = samples.audit(second_slave_equal=False, shorter_slaves=["broker-a-2"])
    assert summarised(found=shorter, stopped_because="a fault").broken == {}
    assert summarised(found=shorter).broken == {"slaves_not_identical": 1}


def test_counts_of_the_one_that_was_hurt_are_those_of_the_drill() -> None:
    found = summarised(is_hurt=True, found=samples.audit(sync_lost=2))
    assert (found.is_hurt, found.sync_lost, found.broken) == (True, 2, {})
    # In a scenario that hurts another group, it is as the others.
    assert summarised(is_hurt=True, slow_ms=9_000.0).broken == {DISTURBED: 1}


def test_a_disturbed_group_is_said_with_what_disturbed_it() -> None:
    found = summarised(slow_ms=9_000.0)
    assert found.broken == {DISTURBED: 1}
    (words,) = examples_of([found, summarised()])
    assert words.startswith("broker-b: sync-1-11")


def test_a_group_that_was_never_calm_is_not_judged_by_it() -> None:
    found = summarised(calm=False, slow_ms=9_000.0)
    assert (found.calm, found.broken, found.sends) == (None, {}, 2)
