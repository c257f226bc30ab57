import pytest

from tandem.wire.delay_level import DelayLevels, delay_level_of
from tandem.wire.errors import ArgumentError
from tandem.wire.system_topics import SCHEDULE_TOPIC


def test_the_default_levels_are_rocketmqs() -> None:
    levels = DelayLevels()
    assert levels.level_max == 18
    assert [levels.delay_ms(level) for level in (1, 4, 5, 14, 18)] == [
        1000,
        30_000,
        60_000,
        600_000,
        7_200_000,
    ]


def test_a_level_there_is_not_waits_a_second() -> None:
    assert DelayLevels("5s").delay_ms(2) == 1000


def test_a_delayed_message_carries_its_deliver_time_instead_of_a_tags_code() -> None:
    levels = DelayLevels()
    properties = b"TAGS\x01TagA\x02DELAY\x013\x02"
    assert levels.dispatch_code(SCHEDULE_TOPIC, properties, 5000) == 15_000
    assert levels.dispatch_code(SCHEDULE_TOPIC, b"DELAY\x0130\x02", 5000) == 5000 + 7_200_000
    assert levels.dispatch_code("T", properties, 5000) == 2_598_919
    assert levels.dispatch_code(SCHEDULE_TOPIC, b"TAGS\x01TagA\x02", 5000) == 2_598_919


@pytest.mark.parametrize("value", [b"", b"DELAY\x01x\x02", b"DELAY\x01\x02"])
def test_what_is_no_number_is_no_level(value: bytes) -> None:
    assert delay_level_of(value) == 0


@pytest.mark.parametrize("setting", ["", "1s  5s", "5", "xs", "5y"])
def test_a_setting_that_cannot_be_read_names_the_piece(setting: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        DelayLevels(setting)
    assert caught.value.names == ("message_delay_level",)
