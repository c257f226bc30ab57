import msgspec
import pytest

from tandem.cluster_file.ranges import Name, Port, milliseconds, size_bytes, whole_number


def test_both_ends_of_a_range_belong_to_it() -> None:
    assert (whole_number(1, 9, "things").ge, whole_number(1, 9, "things").le) == (1, 9)
    assert msgspec.convert(65_535, Port) == 65_535
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(65_536, Port)


def test_a_time_is_a_day_at_most_unless_it_says_otherwise() -> None:
    assert (milliseconds(1).le, milliseconds(1, 5).le) == (86_400_000, 5)


def test_units_are_words_for_people() -> None:
    units = [
        meta.extra for meta in (milliseconds(1), size_bytes(1, 2), whole_number(1, 2, "hours"))
    ]
    assert units == [{"unit": "milliseconds"}, {"unit": "bytes"}, {"unit": "hours"}]


@pytest.mark.parametrize("name", ["a", "Broker-1_x", "9", "a" * 64])
def test_names_are_what_fits_into_paths_and_keys(name: str) -> None:
    assert msgspec.convert(name, Name) == name


@pytest.mark.parametrize("name", ["", "-a", "a/b", "a b", "\u00e9", "a" * 65, "."])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(name, Name)
