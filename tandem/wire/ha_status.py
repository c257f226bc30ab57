"""What a node of a fenced group says about itself: the answers to FENCED_STATUS and FENCED_COMMAND.

Ours, not RocketMQ's: JSON bodies of two request codes that RocketMQ does not have.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One other node of the group as the master sees it. Offsets in bytes, -1 for unknown."""

    name: str
    incarnation: str = ""
    connected: bool = False
    in_sync: bool = False
    """Member of the recorded in-sync set."""
    written: int = -1
    flushed: int = -1
    lag_bytes: int = -1
    acked_ago_ms: int = -1
    """How long ago it last acknowledged something new, or all there was."""
    trouble: str = ""


class HealedPart(msgspec.Struct, frozen=True):
    """A part of the log that was bad, and has been replaced by that of another node."""

    start: int
    end: int
    source: str
    """Name of the node whose bytes it has now."""
    reason: str
    """What was wrong with it, in words."""
    at_ms: int
    """When, in milliseconds since 1970."""


class FencedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node's view of its group."""

    node: str
    group: str
    role: str
    """FOLLOWER, CANDIDATE, OPENING, MASTER, QUARANTINED or RESTARTING."""
    epoch: int
    """Of the state record this node knows."""
    log_epoch: int
    """Of the last entry of its epoch file."""
    master: str
    """Name of the master it knows; empty if there is none."""
    incarnation: str
    promised: int
    log_start: int
    log_end: int
    flushed: int
    confirm: int
    min_isr: int
    ack_level: str
    isr: list[str]
    lease_left_ms: int
    """How long it may go on answering without another keep-alive; 0 if it may not."""
    refusal: str = ""
    """Why it takes no messages, in words; empty if it does."""
    damage: str = ""
    """Which bytes of its log are bad, in words; empty if none is known to be."""
    bad_bytes: int = 0
    not_healed: list[str] = []
    """Why what is bad has not been healed yet, in words, each once."""
    undecided: list[str] = []
    """Where replicas differ, and nobody knows who is right, in words: an operator decides."""
    scrub: str = ""
    """How far the last scrub of its log is, and what it has found, in words; empty for none."""
    healed: list[HealedPart] = []
    """What was bad and is whole again, the newest last."""
    replicas: list[ReplicaStatus] = []
    """Filled by the master only."""
    last_switch_reason: str = ""
    last_switch_cause: str = ""
    """A value of `SwitchCause`, or of a newer version; empty if it is not known."""
    last_switch_at_ms: int = 0
    previous_master: str = ""
    program: str = ""
    """Its version of TandemMQ; empty for one from before feature levels."""
    level: int = 1
    """The feature level of the group, as it knows it."""
    level_max: int = 1
    """The highest that it knows."""
    not_run_ms: int = 0
    """The longest time in the last ten minutes in which its process was not run."""
    late_keep_alives: int = 0
    """How many were late for that, since it began."""
    too_slow: str = ""
    """Why its machine is too slow for its lease, in words; empty if it is not."""


Command = Literal["promote", "resign", "rejoin", "count", "scrub", "raise-features"]


class FencedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's order: `promote` and `resign` go to the master, `rejoin` to the node itself.

    `count` changes nothing: it asks a node how many messages are in a part of its log. `scrub` has
    a node look at its log; it is done when that has begun. `raise-features` goes to the master.
    """

    command: Command
    node: str = ""
    """`promote`: the node to be master."""
    accept_loss: bool = False
    start: int = 0
    end: int = 0
    """`count`: from where to where, physical offsets."""
    level: int = 0
    """`raise-features`: to which feature level; 0: to the highest that a member knows."""


class FencedCommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """`done`, or why not; and what it costs or would cost."""

    done: bool
    text: str
    lost_messages: int = 0
    lost_bytes: int = 0
