"""Who a follower is on a fenced link, and which WELCOME it believes. No I/O in here."""

from __future__ import annotations

import msgspec

from ha.errors import HandshakeError, LinkFault, MasterDeposedError
from ha.fenced.epochs import EpochEntry, expect_rising, is_same_epoch
from ha.fenced.protocol import (
    LEVELS_VERSION,
    OTHER_SECRET,
    Hello,
    Welcome,
    encode_message,
    is_proven,
    proven,
)
from tandem.wire.feature_level import LEVEL_MAX


class LinkFollower(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are, and whom we follow. The same for all connections to one master."""

    cluster: str
    group: str
    name: str
    incarnation: str
    secret: str
    master: str
    epoch: int
    """Of the master, as the coordinator has it."""
    epoch_id: str = ""
    """Of that epoch; empty if it is not known."""
    file_size_bytes: int
    record_bytes_max: int
    check_crc: bool
    digests_bodies: bool = True
    """Whether nothing is taken whose digest the master has not said."""
    program: str = ""
    """Our version of TandemMQ."""
    level_max: int = LEVEL_MAX
    """The highest feature level that we know."""


def hello(follower: LinkFollower, version: int, promised: int, nonces: tuple[str, str]) -> bytes:
    """Return our HELLO on a link of this version; for `promised` and `nonces` see below."""
    said = Hello(
        version=version,
        cluster=follower.cluster,
        group=follower.group,
        node=follower.name,
        incarnation=follower.incarnation,
        epoch=promised,
        file_size_bytes=follower.file_size_bytes,
        nonce=nonces[1],
    )
    if version >= LEVELS_VERSION:
        said = msgspec.structs.replace(said, program=follower.program, level_max=follower.level_max)
    return encode_message(proven(said, follower.secret, *nonces))


def expect_master(
    welcome: Welcome, follower: LinkFollower, promised: int, nonces: tuple[str, str]
) -> None:
    """Look whether that is the WELCOME of the master to follow, and whether it makes sense.

    Args:
        welcome: What the master said.
        follower: Who we are, and whom we follow.
        promised: The newest epoch that we have promised to.
        nonces: The master's, then ours.

    Raises:
        RemoteHAError: it is not.
    """
    if not is_proven(welcome, follower.secret, *nonces):
        raise HandshakeError(f"its proof is wrong: it {OTHER_SECRET}", LinkFault.PROOF)
    if welcome.node != follower.master:
        raise HandshakeError(
            f"{welcome.node!r} answers in the place of {follower.master}", LinkFault.OTHER_NODE
        )
    if welcome.epoch < max(follower.epoch, promised):
        raise MasterDeposedError(
            f"it serves epoch {welcome.epoch}; epoch"
            f" {max(follower.epoch, promised)} is the one to follow"
        )
    if welcome.epoch > follower.epoch:
        raise HandshakeError(
            f"it serves epoch {welcome.epoch} already; waiting for the coordinator to say so",
            LinkFault.EPOCH,
        )
    try:
        expect_rising(welcome.epochs)
    except ValueError as error:
        raise HandshakeError(f"its list of epochs is damaged: {error}", LinkFault.EPOCHS) from error
    if not welcome.epochs or welcome.epochs[-1].epoch != welcome.epoch:
        raise HandshakeError(
            f"its list of epochs does not end with {welcome.epoch}", LinkFault.EPOCHS
        )
    if not is_same_epoch(welcome.epochs[-1], EpochEntry(welcome.epoch, 0, follower.epoch_id)):
        raise HandshakeError(
            f"it is another master of epoch {welcome.epoch} than the one that the coordinator"
            " names",
            LinkFault.EPOCH,
        )
    if not welcome.epochs[-1].start <= welcome.log_end or welcome.log_start > welcome.log_end:
        raise HandshakeError("its list of epochs goes beyond the end of its log", LinkFault.EPOCHS)
