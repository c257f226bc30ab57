"""What all tests share."""

import pytest

pytest_plugins = ["tandem.testing"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the Spark tests together: with several workers, one of them has the one session."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
