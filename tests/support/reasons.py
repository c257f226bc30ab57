"""What a test asks of a reason: that there is one, and its words."""

from store.running_flags import StoreRefusal


def words(reason: str | StoreRefusal | None) -> str:
    """Return a reason in words. None, that is no reason at all, fails the test."""
    assert reason is not None, "there is no reason"
    return reason if isinstance(reason, str) else reason.text
