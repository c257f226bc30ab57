"""The cables of the simulated network: one `Link` for each direction between two addresses.

A link is healthy, slow, stalled, or one of its ends has no power. What it delivers it delivers in
order, whatever happened to it meanwhile.
"""

import math
from collections import deque
from collections.abc import Callable

import trio

from node.simulated.virtual_clock import Timeline
from tandem.wire.message import Host


class Link:
    """One direction between two addresses."""

    def __init__(self) -> None:
        self.stalled = False
        self.dark_ends = 0
        """How many of the two machines are without power."""
        self.extra_delay_seconds = 0.0
        self.bytes_per_second = math.inf
        self._busy_until = 0.0
        self._held: list[Callable[[], None]] = []
        self._slowed: deque[Callable[[], None]] = deque()
        """What was sent while the link was slow and has not arrived, in order."""
        self.heal_count = 0
        self.healthy_until = 0.0
        """When the last of what was sent at full speed arrives."""

    @property
    def is_slow(self) -> bool:
        """True between `slow` and `heal`."""
        return self.extra_delay_seconds > 0 or self.bytes_per_second < math.inf

    def send(self, timeline: Timeline, time_seconds: float, delivery: Callable[[], None]) -> None:
        """Have it arrive at `time_seconds`, or when the link is healed if that is sooner."""
        if not self.is_slow and not self._slowed:
            self.healthy_until = max(self.healthy_until, time_seconds)
            timeline.call_at(time_seconds, lambda: self._arrive(delivery))
            return
        self._slowed.append(delivery)
        timeline.call_at(time_seconds, self._arrive_late)

    def _arrive_late(self) -> None:
        # Nothing left: the link was healed meanwhile, and all of it has arrived.
        if self._slowed:
            self._arrive(self._slowed.popleft())

    def _arrive(self, delivery: Callable[[], None]) -> None:
        if self.stalled or self.dark_ends:
            self._held.append(delivery)
        else:
            delivery()

    def heal(self) -> None:
        """End the faults of the link; what was held or slowed down arrives now, in order."""
        self.stalled = False
        self.extra_delay_seconds = 0.0
        self.bytes_per_second = math.inf
        self._busy_until = 0.0
        self.heal_count += 1
        self._held += self._slowed
        self._slowed.clear()
        self._release()

    def end_without_power(self) -> None:
        """One of the machines lost power."""
        self.dark_ends += 1

    def end_with_power(self) -> None:
        """One of the machines is back."""
        self.dark_ends -= 1
        self._release()

    def _release(self) -> None:
        if self.stalled or self.dark_ends:
            return
        held, self._held = self._held, []
        for delivery in held:
            delivery()

    def arrival_time(self, size_bytes: int, delay_seconds: float) -> float:
        """Return when bytes sent now arrive, and take the link for as long as they need."""
        sent = max(trio.current_time(), self._busy_until) + size_bytes / self.bytes_per_second
        self._busy_until = sent
        return sent + delay_seconds + self.extra_delay_seconds


class Cables:
    """All links.

    Attributes:
        on_event: is told what happens, for the trace.
        channels: ports whose connections have links of their own: a partition can be of them only.
    """

    def __init__(
        self, timeline: Timeline, *, on_event: Callable[[str], None] = lambda _: None
    ) -> None:
        self.timeline = timeline
        self.on_event = on_event
        self.channels: dict[int, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._dark: list[str] = []

    def link(self, source_ip: str, target_ip: str) -> Link:
        """Return the direction from one address to another; `<ip>/<name>` for a channel."""
        key = (source_ip, target_ip)
        if key not in self._links:
            self._links[key] = Link()
            self._links[key].dark_ends = sum(end.split("/")[0] in self._dark for end in key)
        return self._links[key]

    def link_between(self, source: Host, target: Host) -> Link:
        """Return the direction that a connection uses: its channel's, if its port has one."""
        channel = self.channels.get(target.port) or self.channels.get(source.port, "")
        return self.link(source.ip + channel, target.ip + channel)

    def stall(self, source_ip: str, target_ip: str) -> None:
        """Deliver nothing in this direction until it is healed."""
        self.on_event(f"stall {source_ip}>{target_ip}")
        self.link(source_ip, target_ip).stalled = True

    def slow(
        self, source_ip: str, target_ip: str, *, delay_seconds: float, bytes_per_second: float
    ) -> None:
        """Make this direction late and narrow until it is healed."""
        self.on_event(f"slow {source_ip}>{target_ip} {delay_seconds} {bytes_per_second}")
        link = self.link(source_ip, target_ip)
        link.extra_delay_seconds = delay_seconds
        link.bytes_per_second = bytes_per_second

    def heal(self, source_ip: str, target_ip: str) -> None:
        """End every fault of this direction."""
        self.on_event(f"heal {source_ip}>{target_ip}")
        self.link(source_ip, target_ip).heal()

    def heal_all(self) -> None:
        """End every fault of every link. A machine without power stays unreachable."""
        for source_ip, target_ip in list(self._links):
            self.heal(source_ip, target_ip)

    def go_dark(self, ip: str) -> None:
        """Deliver nothing to or from a machine without power, until it is started again."""
        self._dark.append(ip)
        for link in self._links_of(ip):
            link.end_without_power()

    def go_bright(self, ip: str) -> None:
        """A machine is started; harmless if it had power."""
        if ip in self._dark:
            self._dark.remove(ip)
            for link in self._links_of(ip):
                link.end_with_power()

    def _links_of(self, ip: str) -> list[Link]:
        return [
            link for ends, link in self._links.items() if ip in (end.split("/")[0] for end in ends)
        ]
