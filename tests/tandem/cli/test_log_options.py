import pytest
import typer

from tandem.cli.log_options import delay_levels, index_settings, jobs_or_cores, record_filter
from tandem.log import Range, RecordFilter
from tandem.log.errors import BadRequestError
from tandem.log.index_file import IndexSettings
from tandem.log.workers import usable_cores
from tandem.wire.delay_level import MESSAGE_DELAY_LEVEL


def test_without_options_every_record_is_wanted() -> None:
    assert record_filter() == RecordFilter()


def test_options_become_a_filter() -> None:
    wanted = record_filter(
        topic=["a", "b"],
        queue=[1],
        offset="5:",
        physical="7",
        key="k",
        tags=" x || y ",
        since="1700000000000",
    )
    assert wanted == RecordFilter(
        topics=frozenset({"a", "b"}),
        queue_ids=frozenset({1}),
        queue_offsets=Range(start=5),
        physical_offsets=Range(7, 8),
        key="k",
        tags=frozenset({"x", "y"}),
        since_ms=1_700_000_000_000,
    )


@pytest.mark.parametrize("tags", ["*", "", "  "])
def test_a_star_is_every_tag(tags: str) -> None:
    assert record_filter(tags=tags).tags is None


def test_a_range_that_cannot_be_read_is_the_users_mistake() -> None:
    with pytest.raises(BadRequestError):
        record_filter(offset="x")


def test_the_shape_of_index_files_is_given_whole_or_not_at_all() -> None:
    assert index_settings(None, None) is None
    assert index_settings(10, 20) == IndexSettings(10, 20)
    for slots, units in ((10, None), (None, 20)):
        with pytest.raises(typer.BadParameter):
            index_settings(slots, units)


def test_what_is_left_out_has_a_default() -> None:
    assert (jobs_or_cores(3), jobs_or_cores(None)) == (3, usable_cores())
    assert (delay_levels("1s"), delay_levels(None)) == ("1s", MESSAGE_DELAY_LEVEL)
