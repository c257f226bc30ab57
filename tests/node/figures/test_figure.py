from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from node.figures.figure import NO_LABELS, Figure, Labels, LabelsOf, columns, escaped


def test_labels_are_written_with_a_comma_before_each() -> None:
    assert Labels(topic="T", group="g").text == ',topic="T",group="g"'
    assert Labels().text == ""
    assert Labels(a="1") == Labels(a="1") != Labels(a="2")


def test_what_would_end_a_value_is_escaped() -> None:
    assert escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert escaped("ü\n") == "ü\\n"
    assert escaped("half \ud800") == "half ?"


@given(st.text())
def test_no_name_ends_its_line_or_its_value(name: str) -> None:
    text = Labels(topic=name).text
    assert "\n" not in text
    inner = text.removeprefix(',topic="').removesuffix('"')
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    text.encode()


def test_labels_are_made_once_for_each_name_and_not_kept_for_ever() -> None:
    made: list[str] = []

    def make(name: str) -> Labels:
        made.append(name)
        return Labels(name=name)

    labels_of = LabelsOf(make, 2)
    assert labels_of("a") is labels_of("a")
    for name in ("a", "b", "c", "c"):
        labels_of(name)
    assert made == ["a", "b", "c"]


@given(st.lists(st.sampled_from("abc")))
def test_columns_are_figures_of_one_name_in_their_order(names: list[str]) -> None:
    figures = [Figure(name, NO_LABELS, number) for number, name in enumerate(names)]
    found = list(columns(figures))
    assert [
        Figure(column.name, labels, value)
        for column in found
        for labels, value in zip(column.labels, column.values, strict=True)
    ] == figures
    assert all(one.name != other.name for one, other in pairwise(found))
