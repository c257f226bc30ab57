"""The bounds of a user at each node: as they are kept, travel and are shown.

None    what the cluster file has for every user
0       no bound
more    the bound
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

BOUND_MAX: Final = 1 << 40

Number = Annotated[int, msgspec.Meta(ge=0, le=BOUND_MAX)] | None

NO_BOUND: Final = 0


class UserQuota(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a user may take of each node; `None` is the cluster file's bound, 0 is none.

    Attributes:
        connections_max: open ones, also those to the name server beside the broker.
        requests_per_second: sends, pulls and questions; what keeps a client alive is not counted.
        bytes_per_second: of messages, sent and read together.
        bytes_in_flight_max: of messages sent whose answer waits for disks or replicas.
    """

    connections_max: Number = None
    requests_per_second: Number = None
    bytes_per_second: Number = None
    bytes_in_flight_max: Number = None

    @property
    def has_bounds(self) -> bool:
        """Whether anything is bounded, where None is no bound."""
        return any(msgspec.structs.astuple(self))

    def over(self, defaults: UserQuota) -> UserQuota:
        """Return these bounds, and where they say nothing, others."""
        given = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }
        return msgspec.structs.replace(defaults, **given)


OF_THE_FILE: Final = UserQuota()
"""Of a user who has no bounds of their own."""
