from tandem.drill.options import DrillOptions


def test_the_defaults_can_be_played() -> None:
    assert DrillOptions().complaints() == []


def test_every_complaint_is_reported_at_once() -> None:
    complaints = DrillOptions(rate_per_second=0, duration_seconds=1).complaints()

    assert len(complaints) == 2
    assert complaints[0].startswith("--rate 0:")
    assert complaints[1].startswith("--duration 1:")


def test_not_a_number_is_no_duration() -> None:
    assert DrillOptions(duration_seconds=float("nan")).complaints()
