"""Events are records that nobody needs: whoever does not watch ignores them."""

from ha.fenced.events import ConfirmAdvanced, ignore


def test_nobody_has_to_watch() -> None:
    ignore(ConfirmAdvanced(epoch=1, confirm=2))
