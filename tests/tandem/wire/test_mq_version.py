import pytest

from tandem.wire.mq_version import version_text


@pytest.mark.parametrize(("number", "text"), [(479, "5.3.3"), (399, "4.9.3"), (12, "12")])
def test_a_version_is_shown_as_people_know_it(number: int, text: str) -> None:
    assert version_text(number) == text
