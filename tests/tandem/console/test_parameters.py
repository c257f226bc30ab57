import pytest

from tandem.console.errors import APIError
from tandem.console.parameters import Parameters


def test_parameters_are_taken_by_their_kinds() -> None:
    query = Parameters({"a": "x", "n": "-5", "yes": "true", "no": "0", "empty": ""})
    assert query.has("a")
    assert query.text("a") == "x"
    assert not query.has("a")
    assert query.number("n", -9, 9) == -5
    assert (query.flag("yes"), query.flag("no"), query.flag("missing")) == (True, False, False)
    assert query.text("empty", "usual") == "usual"
    assert query.number("missing", 0, 1, None) is None
    query.end()


@pytest.mark.parametrize("value", ["", "x", "1.0", "\u0661", "9" * 30, "-", "10"])
def test_what_is_no_number_of_the_range_is_an_error(value: str) -> None:
    with pytest.raises(APIError) as caught:
        Parameters({"n": value}).number("n", 0, 9)
    assert caught.value.details == {"parameter": "n"}


@pytest.mark.parametrize("value", ["1", 1.0, True, None, [1], 10])
def test_numbers_of_json_are_numbers(value: object) -> None:
    with pytest.raises(APIError):
        Parameters({"n": value}, is_json=True).number("n", 0, 9)
    assert Parameters({"n": 9}, is_json=True).number("n", 0, 9) == 9


@pytest.mark.parametrize("value", ["", None, 1, {}, []])
def test_text_is_text(value: object) -> None:
    with pytest.raises(APIError):
        Parameters({"t": value}, is_json=True).text("t")


@pytest.mark.parametrize("value", ["true", 1, None, "yes"])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(APIError):
        Parameters({"f": value}, is_json=True).flag("f")
    with pytest.raises(APIError):
        Parameters({"f": "yes"}).flag("f")


def test_what_nobody_takes_is_a_mistake() -> None:
    with pytest.raises(APIError) as caught:
        Parameters({"x": "1"}).end()
    assert caught.value.code == "bad_parameter"
