import math

from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE
from tandem.drill.timeline import Timeline, percentile


def test_a_send_counts_in_the_phase_it_was_sent_in() -> None:
    timeline = Timeline()
    timeline.start_phase(0.0, "slave-loss", "steady")
    phase = timeline.sent()
    timeline.start_phase(1.0, "slave-loss", "kill-slaves")
    assert phase.in_flight == 1

    timeline.answered(
        1.1, phase, "sync", SEND_OK, reason="", send_id="sync-1-0000000", latency_ms=2.0
    )

    assert [p.count("sync", SEND_OK) for p in timeline.phases] == [1, 0]
    assert phase.in_flight == 0
    assert phase.ended_at == 1.0
    assert timeline.buckets[4].sends["sync", SEND_OK] == 1


def test_reasons_that_differ_in_a_number_are_one() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    for number, reason in enumerate(
        (
            "slave 127.0.0.2:10912 is 300 MiB behind, limit 256 MiB",
            "slave 127.0.0.2:10912 is 312 MiB behind, limit 256 MiB",
            "slave 127.0.0.3:10912 is 312 MiB behind, limit 256 MiB",
        )
    ):
        timeline.sent()
        timeline.answered(
            0.1,
            phase,
            "sync",
            SLAVE_NOT_AVAILABLE,
            reason=reason,
            send_id=str(number),
            latency_ms=1,
        )

    found = [(reason.count, reason.example, reason.text) for reason in timeline.reasons.values()]

    assert found == [
        (2, "0", "slave 127.0.0.2:10912 is 300 MiB behind, limit 256 MiB"),
        (1, "2", "slave 127.0.0.3:10912 is 312 MiB behind, limit 256 MiB"),
    ]


def test_an_answer_without_a_reason_is_noticed_unless_all_is_well() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    for status in (SEND_OK, SLAVE_NOT_AVAILABLE):
        timeline.sent()
        timeline.answered(0, phase, "sync", status, reason="", send_id="x", latency_ms=1)

    assert phase.without_reason == 1


def test_counts_by_mode_and_status() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    for status in (SEND_OK, SEND_OK, NOT_SENT):
        timeline.sent()
        timeline.answered(0, phase, "async", status, reason="why", send_id="x", latency_ms=1)

    assert phase.count("async") == 3
    assert phase.count("async", SEND_OK) == 2
    assert phase.count("sync") == 0


def test_the_last_second_does_not_count_the_bucket_that_is_filling() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    for at in (0.1, 1.0, 1.6, 2.1):
        timeline.sent()
        timeline.answered(at, phase, "sync", SEND_OK, reason="", send_id="x", latency_ms=1)

    assert timeline.sends_lately(2.1)["sync", SEND_OK] == 2


def test_reads_count_in_the_current_phase() -> None:
    timeline = Timeline()
    phase = timeline.start_phase(0.0, "s", "p")
    timeline.read(0.3, 32)
    timeline.read_failed()

    assert (phase.messages_read, phase.reads_failed) == (32, 1)
    assert timeline.buckets[1].messages_read == 32


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]

    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([3.0], 0.99) == 3.0
    assert math.isnan(percentile([], 0.5))
