"""What faults did, counted where they are felt. A fault that nobody felt shows nothing. Pure.

That syncs were slow, a clock wrong, a disk lost or full is said by something else than what has
done it: the node's own syncs and readings, the disk as it is afterwards. Without that a drill in
which nothing was broken would pass.
"""

from collections.abc import Callable

import msgspec


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one fault did. Times in seconds since the drill started."""

    at_seconds: float
    scenario: str
    fault: str
    """As the timeline has it."""
    text: str
    """What was counted, such as `7 syncs were delayed`."""
    count: int
    is_felt: bool

    def in_words(self) -> str:
        """Return it as one sentence."""
        return f"{self.fault}: {self.text}"


class _Open(msgspec.Struct):
    """A fault that lasts, with what was counted before it."""

    at_seconds: float
    scenario: str
    fault: str
    what: str
    count: Callable[[], int]
    before: int


class Effects:
    """Faults that last, and in `found` what became of those that are over."""

    def __init__(self) -> None:
        self.found: list[Effect] = []
        self._open: dict[tuple[str, str], _Open] = {}

    @property
    def unfelt(self) -> list[Effect]:
        """Faults that did nothing."""
        return [effect for effect in self.found if not effect.is_felt]

    def note(
        self,
        at_seconds: float,
        scenario: str,
        fault: str,
        *,
        text: str,
        count: int,
        is_felt: bool,
    ) -> None:
        """Take what a fault did at once."""
        self.found.append(
            Effect(
                at_seconds=at_seconds,
                scenario=scenario,
                fault=fault,
                text=text,
                count=count,
                is_felt=is_felt,
            )
        )

    def begin(
        self,
        at_seconds: float,
        scenario: str,
        fault: str,
        *,
        of: tuple[str, str],
        what: str,
        count: Callable[[], int],
    ) -> None:
        """Count from now on what a fault does that lasts; one of the same node and kind is over.

        `of`: its node and kind. `what` is counted: `syncs were delayed`.
        """
        self.end(of)
        self._open[of] = _Open(at_seconds, scenario, fault, what, count, count())

    def end(self, of: tuple[str, str]) -> None:
        """Note what a fault did that is over; nothing where there is none."""
        fault = self._open.pop(of, None)
        if fault is None:
            return
        count = fault.count() - fault.before
        self.note(
            fault.at_seconds,
            fault.scenario,
            fault.fault,
            text=f"{count:,} {fault.what}",
            count=count,
            is_felt=count > 0,
        )

    def end_all(self) -> None:
        """Note what all faults did that are not over: the scenario is."""
        for of in list(self._open):
            self.end(of)
