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


def test_each_scenario_has_its_time_unless_a_time_for_all_is_given() -> None:
    assert DrillOptions().seconds_of(2) == 40.0
    assert DrillOptions(short=True).seconds_of(2) == 16.0
    assert DrillOptions(duration_seconds=9).seconds_of(2) == 9.0


def test_a_repetition_is_a_number_above_0() -> None:
    assert DrillOptions(repeat=0).complaints()[0].startswith("--repeat 0:")


def test_patience_is_a_number_of_at_least_1() -> None:
    assert DrillOptions(patience=6.0).complaints() == []
    assert DrillOptions(patience=0.5).complaints()[0].startswith("--patience 0.5:")
    assert DrillOptions(patience=float("nan")).complaints()


def test_name_servers_are_a_few() -> None:
    assert DrillOptions(name_servers=3).complaints() == []
    for count in (0, 6):
        assert DrillOptions(name_servers=count).complaints()[0].startswith("--name-servers")


def test_groups_are_as_many_as_a_machine_may_have() -> None:
    assert DrillOptions(groups=2, group="broker-b").complaints() == []
    for count in (0, -1, 10):
        assert DrillOptions(groups=count).complaints()[0].startswith(f"--groups {count}:")
