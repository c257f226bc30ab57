import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tandem.drill.consumers.promises import EXCEPTIONS
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.summary import Summary
from tandem.drill.verdict import exit_status, print_verdict
from tandem.drill.watched_group import Change
from tandem.drill.witness_audit import WitnessSummary
from tests.tandem.drill import samples
from tests.tandem.drill.consumers.planted_consumers import OWED, PLANTS, judged_promises


def printed(summary: Summary, *, terminal: bool = False, width: int = 120) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, _environ={"TERM": "xterm"}
    )
    print_verdict(console, summary, Path("report/index.html"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_that_is_not_compared_is_named() -> None:
    early = samples.summary(stopped_because="it could not go on", apart=["broker-a-2"])
    assert "broker-a-2 not compared" in printed(early)
    assert "not compared" not in printed(samples.summary())


def test_exit_status_is_0_only_if_everything_held() -> None:
    assert exit_status(samples.summary()) == 0
    assert exit_status(samples.summary(found=samples.audit(sync_lost=1))) == 1
    assert exit_status(samples.summary(expectations=[samples.expectation(held=False)])) == 1
    assert exit_status(samples.summary(audited=False)) == 1
    assert exit_status(samples.summary(audited=False, interrupted=True)) == 130


def test_the_verdict_says_what_was_acknowledged_and_lost() -> None:
    text = printed(samples.summary())

    assert "PASSED" in text
    assert "51 acknowledged" in text
    assert "3 lost (allowed)" in text
    assert "2 of 2 equal the master" in text
    assert "report: report/index.html" in text


def test_a_witness_has_its_line() -> None:
    assert "Java's client" not in printed(samples.summary())
    same = WitnessSummary(client="Java", deliveries=1105, repeated=3)
    text = printed(samples.summary(witness=same))
    assert "1,105 given" in text
    assert "3 once more (allowed)" in text
    silent = WitnessSummary(client="Java", deliveries=0)
    assert "not measured" in printed(samples.summary(witness=silent))
    other = WitnessSummary(client="Java", deliveries=9, different=1, examples=("different: x",))
    text = printed(samples.summary(witness=other))
    assert "FAILED: 1 broken promise" in text
    assert "different: x" in text
    assert "1 witness_different" in text


def test_groups_have_their_line() -> None:
    assert "groups" not in printed(samples.summary())
    assert "each of them handled" in printed(samples.summary(promises=judged_promises()))
    text = printed(samples.summary(promises=judged_promises(PLANTS[0])))
    assert "FAILED" in text
    assert "1 consumers_passed_over" in text
    owed = printed(samples.summary(promises=judged_promises(OWED[0])))
    assert "1 not handled by first" in owed


def test_what_nobody_promised_to_groups_is_said_and_breaks_nothing() -> None:
    free = {"consumers_passed_over": "why"}
    text = printed(samples.summary(promises=judged_promises(PLANTS[0], not_promised=free)))
    assert "broken promises  none" in text
    assert "each of them handled, none early or passed over; not promised: 1 passed_over" in text
    free = dict.fromkeys((f"consumers_{name}" for name in EXCEPTIONS), "why")
    text = printed(samples.summary(promises=judged_promises(OWED[0], not_promised=free)))
    assert "each of them handled" not in text
    assert "not handled by first" in text
    assert "FAILED" not in text


def test_a_stream_has_its_line() -> None:
    assert "Spark stream" not in printed(samples.summary())
    whole = printed(samples.summary(stream=StreamSummary(rows=1105)))
    assert "1,105 rows" in whole
    assert "each record of the log once, and nothing else" in whole
    broken = StreamSummary(rows=9, missing=1, examples=("missing: queue 1, offset 3",))
    text = printed(samples.summary(stream=broken))
    assert "missing: queue 1, offset 3" in text
    assert "1 stream_missing" in text


def test_broken_promises_are_named() -> None:
    text = printed(samples.summary(found=samples.audit(sync_lost=2, second_slave_equal=False)))

    assert "2 sync_lost, 1 slaves_not_identical" in text


def test_failed_expectations_are_shown_with_what_was_seen() -> None:
    text = printed(samples.summary(expectations=[samples.expectation(held=False)]))

    assert "19 SLAVE_NOT_AVAILABLE, 1 SEND_OK" in text


def test_an_interrupted_drill_claims_nothing() -> None:
    text = printed(samples.summary(audited=False, interrupted=True))

    assert "INTERRUPTED" in text
    assert "lost" not in text


def test_failovers_are_shown_step_by_step_and_unavailability_by_scenario() -> None:
    history = [
        Change(0.5, "epoch", "broker-a-0", 1),
        Change(3.4, "leader-gone", "broker-a-0", 1),
        Change(3.9, "epoch", "broker-a-1", 2),
    ]
    text = printed(samples.summary(history=history, runs=[samples.RUN, samples.RUN]))

    assert "Failovers" in text
    assert "broker-a-1, epoch 2" in text
    assert "0.40" in text
    assert "0.90" in text
    assert "master-kill" in text
    assert "1.50" in text


def test_what_could_not_be_played_is_said_and_is_not_a_pass() -> None:
    impossible = msgspec.structs.replace(samples.RUN, outcome="not possible here: no root")
    summary = samples.summary(runs=[impossible])

    assert exit_status(summary) == 4
    assert "master-kill: not possible here: no root" in printed(summary)
    assert exit_status(samples.summary(runs=[impossible, samples.RUN])) == 0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_on_a_terminal_and_names_are_whole(width: int) -> None:
    history = [*samples.LOST, Change(3.4, "ended", "broker-a-1", 2)]
    summary = samples.summary(
        expectations=[samples.expectation(held=False)], runs=[samples.RUN], history=history
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed(summary, terminal=True, width=width)).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for name in ("broker-a-1, epoch 2", "slaves-down", "slave-loss", "master-kill"):
        assert name in text
    assert not any(line.endswith(" ") for line in lines)
    assert max(map(len, printed(summary).splitlines())) > 120


def test_an_inconclusive_drill_has_a_status_of_its_own_and_says_why() -> None:
    summary = samples.inconclusive()
    assert exit_status(summary) == 3
    text = printed(summary)
    assert text.startswith("\nINCONCLUSIVE: the machine was too slow to say\n")
    assert "broker-a-0 lost its lease at 2.0 s (epoch 1), and nothing had been done to it" in text
    assert "woken up to 2.5 s late" in text


def test_a_count_of_nothing_is_not_measured() -> None:
    nothing = msgspec.structs.replace(samples.audit(), sync_acknowledged=0, async_acknowledged=0)
    text = printed(samples.summary(found=nothing))
    assert text.count("not measured") == 2
    assert "0 lost" not in text


def test_a_failure_says_what_had_been_done_last() -> None:
    text = printed(samples.summary(expectations=[samples.expectation(held=False)]))
    assert "last done before" in text
    assert "1 SEND_OK  kill -9 broker-a-1, broker-a-2" in text


def test_each_group_of_several_has_a_line() -> None:
    text = printed(samples.summary(groups=samples.two_groups()))
    assert "broker-a (hurt)" in text
    assert "100 sends: 1 failed, 1 slower than 1.5 s; 0 elections" in text
    assert "1 sync_lost, 2 disturbed" in text
    assert "while others were hurt" not in printed(samples.summary())
