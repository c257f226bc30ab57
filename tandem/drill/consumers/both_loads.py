"""The sends that are looked for on the disks, and the consumers' load, as one load."""

from tandem.drill.consumers.load import ConsumerLoad
from tandem.drill.outcomes import SendMode
from tandem.drill.timeline import Phase
from tandem.drill.workload import Workload


class BothLoads:
    """What scenarios start, pause and wait for; `consumers`: None where they are not audited."""

    def __init__(self, workload: Workload, consumers: ConsumerLoad | None) -> None:
        self._workload = workload
        self._consumers = consumers

    def latest(self, mode: SendMode, phase: Phase) -> list[str | None]:
        """Per producer: the status of its last answer to a send of this phase, if there is one."""
        return self._workload.latest(mode, phase)

    def pause(self) -> None:
        """Let producers rest once their sends are answered."""
        self._workload.pause()
        if self._consumers is not None:
            self._consumers.pause()

    def resume(self) -> None:
        """Let producers send again."""
        self._workload.resume()
        if self._consumers is not None:
            self._consumers.resume()

    def left_to_send(self) -> int:
        """Lines of the input that have not been acknowledged yet."""
        return self._workload.left_to_send()

    def left_to_read(self) -> int:
        """Acknowledged messages that readers have not seen yet."""
        return self._workload.left_to_read()

    def allow_early(self, seconds: float) -> None:
        """Let groups get what waits that much before its time."""
        if self._consumers is not None:
            self._consumers.promises.allow_early(seconds * 1000)

    def left_to_handle(self) -> str | None:
        """Return in words what is owed to consumers; None where they are not audited."""
        return None if self._consumers is None else self._consumers.left()

    def left_unpromised(self) -> int:
        """Return how much may still come to groups that nobody has promised."""
        return 0 if self._consumers is None else self._consumers.left_unpromised()
