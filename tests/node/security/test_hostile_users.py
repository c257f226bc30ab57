"""Hostile requests, signed and not, at a node that asks for users: nothing breaks or leaks."""

import logging
import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from store.machine.network import ConnectionLost
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tests.fuzz import hostile
from tests.fuzz.remoting import Frames
from tests.node.security.users_world import (
    ALICE,
    AUTHORIZED,
    BOB,
    OPERATOR,
    as_user,
    classic_world,
    entry,
    make_user,
    sample,
)
from tests.node.world import MASTER

FRAMES: Final = int(os.environ.get("HOSTILE_FRAMES", "1500"))
PER_CONNECTION: Final = 25
CODE: Final = re.compile(rb'"code":([0-9]+)')


def signed(chance: random.Random, frame: bytes) -> bytes:
    """Sign a request, if it is one, rightly or nearly so."""
    frames = FrameBuffer()
    try:
        frames.receive_data(frame)
        command = frames.next_command()
        if command is None or command.is_response:
            return frame
        keys = chance.choice([ALICE, ALICE, ALICE, BOB, ("mallory", "x" * 9)])
        fields = with_acl_signature(*keys, command.ext_fields(), command.body)
    except WireError:
        return frame
    if chance.random() < 0.1:
        fields[chance.choice(sorted(fields))] = chance.choice(["", "\u00e9\ud83d", "x" * 300])
    try:
        return encode_frame(msgspec.structs.replace(command, ext=fields))
    except (ValueError, msgspec.MsgspecError, UnicodeError):
        return frame


def made(chance: random.Random, frames: Frames) -> bytes:
    """Return a request of any code, valid or not, signed or not."""
    if chance.random() < 0.4:
        code = chance.choice([code for code in RequestCode if code not in (30, 31)])
        try:
            ext, body = sample(code)
        except KeyError:
            ext, body = {"topic": "T"}, b""
        if chance.random() < 0.5:
            body = hostile.broken(chance, body)
        data = encode_frame(RemotingCommand(code, 1, ext=ext, body=body))
    else:
        data = frames.next()
    if chance.random() < 0.9:
        data = signed(chance, data)
    return hostile.broken(chance, data) if chance.random() < 0.1 else data


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_breaks_and_nothing_leaks(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """Alice may everything, so that her requests come to their handlers; Bob may nothing."""
    chance = random.Random(seed)
    caplog.set_level(logging.ERROR)
    async with classic_world(tmp_path, AUTHORIZED) as world, world.client(MASTER) as client:
        await make_user(client, ALICE, entry("Allow", "*", "All"))
        await make_user(client, BOB)
        frames, codes = Frames(chance, name_server=False), Counter[bytes]()
        for number in range(FRAMES // PER_CONNECTION):
            data = b"".join(made(chance, frames) for _ in range(PER_CONNECTION))
            ip = f"10.0.{1 + number // 200}.{1 + number % 200}"
            stream = await world.network.machine(ip).connect(MASTER, 10911, source=ip)
            with trio.move_on_after(0.3):
                try:
                    await stream.send_all(data)
                    while received := await stream.receive_some(65_536):
                        codes.update(CODE.findall(received))
                except ConnectionLost:
                    pass
            await stream.aclose()
            # She may delete him, and herself.
            await _again(client)
            assert (await as_user(client, OPERATOR).send(b"canary", topic="Canary")).code == 0
    # So some were served, some refused, and some could not be read.
    assert min(codes[b"0"], codes[b"16"], codes[b"1"]) > FRAMES // 50, codes
    bugs = [record.getMessage() for record in caplog.records if "a bug" in record.getMessage()]
    assert bugs == []
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert ALICE[1] not in text


async def _again(client: object) -> None:
    """Make the users again, if a request has deleted or disabled them."""
    operator = as_user(client, OPERATOR)  # type: ignore[arg-type]
    for name, secret in (ALICE, BOB):
        body = msgspec.json.encode({"password": secret, "userStatus": "enable"})
        answer = await operator.call(RequestCode.AUTH_UPDATE_USER, {"username": name}, body)
        if answer.code:
            await make_user(client, (name, secret))  # type: ignore[arg-type]
    right = msgspec.json.encode({"policies": [{"entries": [entry("Allow", "*", "All")]}]})
    await operator.call(RequestCode.AUTH_UPDATE_ACL, {"subject": "User:alice"}, right)
