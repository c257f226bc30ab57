"""Why a fenced group got another master, as a value: programs go by it, people read the reason."""

import enum


class SwitchCause(enum.StrEnum):
    """The cause of a change of master. A newer version may write others, so it travels as text."""

    FIRST = "first"
    """The group had none before."""

    LEASE_ENDED = "lease-ended"
    """The master did not renew its lease in time, or its process was gone and the supervisor ended
    its lease. That it has noticed so itself is the same."""

    STEPPED_DOWN = "stepped-down"
    """It gave its lease back: its process stopped, an operator asked, or another should be it."""

    PROMOTED = "promoted"
    """An operator named the new one."""

    RECOVERED = "recovered"
    """An operator chose whose log counts."""
