import re
from pathlib import Path

import msgspec
import pytest

from tandem.drill import report
from tandem.drill.errors import ReportError
from tandem.drill.report import render, write_report
from tandem.drill.stream_audit import StreamSummary
from tandem.drill.watched_group import Change
from tandem.drill.witness_audit import WitnessSummary
from tests.tandem.drill import samples
from tests.tandem.drill.consumers.planted_consumers import PLANTS, judged_promises


@pytest.fixture(autouse=True)
def _a_quick_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a page, and has tests of its own."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(report, "story_svg", lambda *_, **__: "<svg></svg>")
        monkeypatch.setattr(report, "details_svg", lambda *_: "<svg></svg>")


def test_the_verdict_comes_first() -> None:
    page = render(samples.summary(), samples.timeline())

    body = page[page.index("<body>") :]
    assert body.index("PASSED: every promise held") < body.index("<svg")
    assert "slave logs equal" in " ".join(body.split())


def test_what_faults_did_is_shown_and_one_that_did_nothing_is_why() -> None:
    felt = render(samples.summary(effects=samples.effects(is_felt=True)), samples.timeline())
    assert "<td>7 syncs were delayed</td>" in felt
    unfelt = render(samples.summary(effects=samples.effects()), samples.timeline())
    assert '<td class="bad">0 syncs were delayed</td>' in unfelt
    assert "let syncs of a be slow: 0 syncs" in unfelt[: unfelt.index("<svg")]
    assert "What faults did" not in render(samples.summary(), samples.timeline())


def test_the_first_screen_says_what_when_and_how_long() -> None:
    outage = msgspec.structs.replace(samples.RUN, unavailable_seconds=5.254)
    page = render(samples.summary(runs=[samples.RUN, outage]), samples.timeline())

    first = " ".join(page[page.index("<body>") : page.index("<svg")].split())
    assert "<b>TandemMQ drill</b> · 1 January 2026, 00:00 UTC" in first
    assert "slave-loss, master-loss · 3 nodes, classic group · seed 1" in first
    assert '<div class="longest"><b>5.25 s</b>' in first
    assert "after <code>kill -9 broker-a-1, broker-a-2</code>: no master" in first
    assert "played" not in page


def test_a_drill_that_hurt_nothing_says_that_the_longest_time_was_not_measured() -> None:
    page = render(samples.summary(), samples.timeline())
    assert '<div class="longest"><b class="none">not measured</b>' in page


def test_a_count_of_nothing_is_not_a_green_zero() -> None:
    page = render(samples.summary(audited=False, interrupted=True), samples.timeline())
    assert '<b class="none">not measured</b><span>of them lost</span>' in page
    assert '<b class="none">not measured</b><span>all logs equal, byte for byte</span>' in page
    assert 'class="good">none' not in page
    nothing = msgspec.structs.replace(samples.audit(), sync_acknowledged=0)
    page = render(samples.summary(found=nothing), samples.timeline())
    assert '<b class="none">not measured</b><span>of them lost</span>' in page
    page = render(samples.summary(), samples.timeline())
    assert '<b class="good">0</b><span>of them lost</span>' in page


def test_a_failed_drill_says_what_was_done_last_and_what_its_counts_mean() -> None:
    summary = samples.summary(
        found=samples.audit(sync_lost=2), expectations=[samples.expectation(held=False)]
    )
    page = render(summary, samples.timeline())
    assert "<code>kill -9 broker-a-1, broker-a-2</code>, 3.00 s" in page
    assert "<b>2</b> sync_lost: sync sends answered SEND_OK that the master" in page


def test_an_inconclusive_drill_says_why() -> None:
    page = render(samples.inconclusive(), samples.timeline())
    assert "INCONCLUSIVE: the machine was too slow to say" in page
    assert "broker-a-0 lost its lease at 2.0 s (epoch 1), and nothing had been done to it" in page


@pytest.mark.slow  # with its picture
def test_the_page_needs_no_network() -> None:
    page = render(samples.summary(), samples.timeline())

    assert not re.search(r'(src|href)="(?!#)', page)
    assert "@import" not in page
    assert "url(http" not in page


def test_a_broken_promise_is_named_with_its_number() -> None:
    summary = samples.summary(found=samples.audit(sync_lost=2))

    page = render(summary, samples.timeline())

    assert "FAILED: 2 broken promises" in page
    assert "<b>2</b> sync_lost" in page


def test_what_a_witness_was_given_is_said_with_examples() -> None:
    assert "A second witness" not in render(samples.summary(), samples.timeline())
    other = WitnessSummary(client="Java 5", deliveries=9, unknown=1, examples=("unknown: here",))
    page = render(samples.summary(witness=other), samples.timeline())
    assert "Java 5 consumed the same topic" in page
    assert "unknown: here" in page


def test_what_groups_got_is_said_with_findings() -> None:
    assert "Groups of consumers" not in render(samples.summary(), samples.timeline())
    sound = render(samples.summary(promises=judged_promises()), samples.timeline())
    assert "0 promises to them were broken" in sound
    page = render(samples.summary(promises=judged_promises(PLANTS[0])), samples.timeline())
    assert "1 promises to them were broken" in page
    assert "<b>1</b> consumers_passed_over: a group" in page
    assert "nobody has promised otherwise" not in page


def test_what_nobody_promised_to_groups_is_said_with_the_reason() -> None:
    free = {"consumers_passed_over": "its slaves may lack it"}
    promises = judged_promises(PLANTS[0], not_promised=free)
    page = render(samples.summary(promises=promises), samples.timeline())
    assert "0 promises to them were broken" in page
    assert "nobody has promised otherwise: 1 passed_over" in page
    assert "its slaves may lack it" in page


def test_what_a_stream_wrote_is_said_with_examples() -> None:
    assert "The Spark stream" not in render(samples.summary(), samples.timeline())
    broken = StreamSummary(rows=1105, repeated=2, examples=("repeated: queue 1, offset 3",))
    page = render(samples.summary(stream=broken), samples.timeline())
    assert "1,105 rows" in page
    assert "2 rows are there twice" in page
    assert "<code>repeated: queue 1, offset 3</code>" in page


def test_a_slave_that_differs_is_named_with_the_place() -> None:
    summary = samples.summary(found=samples.audit(second_slave_equal=False))

    page = render(summary, samples.timeline())

    assert "broker-a-1 equals the master<" in page
    assert "broker-a-2 differs from the master from byte 4,096 on" in page


def test_slaves_of_a_drill_that_stopped_early_are_not_blamed() -> None:
    found = samples.audit(second_slave_equal=False, shorter_slaves=["broker-a-2"])

    note = "the drill stopped before broker-a-2 could catch up"
    stopped = samples.summary(found=found, stopped_because="slave-loss could not go on")
    assert note in render(stopped, samples.timeline())
    assert note not in render(samples.summary(found=found), samples.timeline())


def test_disorder_that_consumers_saw_is_shown_by_example() -> None:
    summary = samples.summary(disorder=["queue 1 offset 5: expected offset 4"] * 30)

    page = render(summary, samples.timeline())

    assert "30 messages out of order, such as queue 1 offset 5: expected offset 4;" in page
    assert page.count("expected offset 4") == 10


def test_a_failed_expectation_stands_at_the_top_with_what_was_seen() -> None:
    summary = samples.summary(expectations=[samples.expectation(held=False)])

    page = render(summary, samples.timeline())

    assert "FAILED: 1 expectation not met" in page
    assert page.index("19 SLAVE_NOT_AVAILABLE, 1 SEND_OK") < page.index("<svg")


def test_an_interrupted_drill_says_so_and_shows_what_there_is() -> None:
    page = render(samples.summary(audited=False, interrupted=True), samples.timeline())

    assert "INTERRUPTED" in page
    assert "There was no audit." in page
    assert "every promise held" not in page


def test_reasons_are_shown_as_text_not_as_markup() -> None:
    page = render(samples.summary(), samples.timeline())

    assert "127.0.0.1:10911 &lt;refused&gt; &amp; gone" in page


def test_the_page_says_what_an_answer_means() -> None:
    page = render(samples.summary(), samples.timeline())

    assert "unknown, not failed" in page


def test_a_report_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "report").touch()

    with pytest.raises(ReportError, match=r"cannot write the report in .*: File exists"):
        write_report(samples.summary(), samples.timeline(), [], tmp_path / "report")


@pytest.mark.slow  # with its picture
def test_page_and_facts_are_written(tmp_path: Path) -> None:
    page = write_report(samples.summary(), samples.timeline(), [], tmp_path / "report")

    assert page == tmp_path / "report" / "index.html"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    facts = msgspec.json.decode((tmp_path / "report" / "summary.json").read_bytes())
    assert facts["verdict"] == "PASSED"


def fenced_history() -> list[Change]:
    return [
        Change(0.5, "epoch", "broker-a-0", 1),
        Change(0.6, "open", "broker-a-0", 1),
        Change(3.4, "leader-gone", "broker-a-0", 1),
        Change(3.9, "epoch", "broker-a-1", 2, "its lease ended"),
        Change(4.0, "open", "broker-a-1", 2),
    ]


@pytest.mark.slow  # with its picture
def test_failovers_and_promises_have_their_tables_and_masters_their_bands() -> None:
    history = fenced_history()
    impossible = msgspec.structs.replace(
        samples.RUN,
        name="slave-disk-full",
        outcome="not possible here: only root can mount one",
        unavailable_seconds=None,
    )
    summary = samples.summary(history=history, runs=[samples.RUN, impossible])

    page = render(summary, samples.timeline(), history)

    assert "its lease ended" in page
    assert "Nothing is lost." in page
    assert "not possible here: only root can mount one" in page
    assert "broker-a-1, epoch 2" in page, "the band of the new master"
    assert page.count("1.50 s: too few replicas<") == 2, "in both pictures"
    assert "without an acknowledgement of a sync send, in master-kill" in " ".join(page.split())


def test_the_other_nodes_of_a_fenced_group_are_followers() -> None:
    page = render(samples.summary(history=fenced_history()), samples.timeline(), fenced_history())
    assert "follower logs equal" in " ".join(page.split())


def test_a_drill_that_this_machine_cannot_play_has_not_passed() -> None:
    impossible = msgspec.structs.replace(samples.RUN, outcome="not possible here: no root")

    page = render(samples.summary(runs=[impossible]), samples.timeline())

    assert "NOT POSSIBLE" in page
    assert "every promise held" not in page


def test_each_group_of_several_has_its_figures() -> None:
    page = render(samples.summary(groups=samples.two_groups()), samples.timeline())
    assert "<h2>Groups</h2>" in page
    assert "broker-a (was hurt)" in page
    assert "100 sends in 8.0 s: 1 failed, 1 slower than 1.5 s" in page
    assert "<h2>Groups</h2>" not in render(samples.summary(), samples.timeline())


def test_the_page_says_which_group_was_drilled_and_what_was_beside_it() -> None:
    alone = render(samples.summary(), samples.timeline())
    assert "<th>group</th><td>broker-a, classic</td>" in alone
    beside = render(samples.summary(groups=samples.two_groups()), samples.timeline())
    assert "<th>group</th><td>broker-a, classic; beside it broker-b</td>" in beside
