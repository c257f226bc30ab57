"""Who this client is: its client id, and the unique keys of its messages."""

import calendar
import datetime as dt
import ipaddress
import os
import secrets
import socket
import struct
import time

import msgspec

COUNTER_MASK = 0xFFFF


def wall_clock_ms() -> int:
    """Return milliseconds since 1970. Only ever data in messages, never a deadline."""
    return time.time_ns() // 1_000_000


class ClientIdentity(msgspec.Struct, frozen=True):
    """What tells one client from another. `salt` is a random 32-bit number."""

    ip: str
    process_id: int
    salt: int

    @property
    def client_id(self) -> str:
        """The name in heartbeats, `ip@process#salt`, as Java writes it."""
        return f"{self.ip}@{self.process_id}#{self.salt}"


def local_identity(name_server: str) -> ClientIdentity:
    """Return an identity for this process, with the address that it reaches `name_server` from."""
    host, _, port = name_server.rpartition(":")
    try:
        # Connecting a datagram socket sends nothing; it only chooses the local address.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            ip = str(probe.getsockname()[0])
    except (OSError, ValueError):
        ip = "127.0.0.1"
    return ClientIdentity(ip, os.getpid(), secrets.randbits(32))


class UniqueKeys:
    """Makes the UNIQ_KEY of each message: 32 upper-case hex digits (56 for IPv6).

        address 4 or 16 | process id 2 | salt 4 | ms since the start of the month 4 | counter 2

    Source: RocketMQ 5.3.3, MessageClientIDSetter.createUniqID. The month is that of UTC here; to
    everybody else the key is opaque.
    """

    def __init__(self, identity: ClientIdentity) -> None:
        address = ipaddress.ip_address(identity.ip).packed
        process = identity.process_id & 0xFFFF
        self._prefix = f"{address.hex()}{process:04x}{identity.salt & 0xFFFFFFFF:08x}".upper()
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = 0
        self._now_ms = -1
        self._until_ms = ""
        """The key of `_now_ms` up to the counter: many are made in one millisecond."""

    def next_key(self, now_ms: int) -> str:
        """Return a key that no other message has. `now_ms` is the wall clock's time."""
        if now_ms != self._now_ms:
            self._enter_ms(now_ms)
        counter = self._counter
        self._counter = counter + 1 & COUNTER_MASK
        return f"{self._until_ms}{counter:04X}"

    def next_keys(self, now_ms: int, count: int) -> list[str]:
        """Return as many keys, as `next_key` makes them one by one."""
        if now_ms != self._now_ms:
            self._enter_ms(now_ms)
        counter = self._counter
        self._counter = counter + count & COUNTER_MASK
        counters = [each & COUNTER_MASK for each in range(counter, counter + count)]
        digits = struct.pack(f">{count}H", *counters).hex().upper()
        until = self._until_ms
        return [until + digits[place : place + 4] for place in range(0, 4 * count, 4)]

    def _enter_ms(self, now_ms: int) -> None:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._enter_month(now_ms)
        self._now_ms = now_ms
        self._until_ms = f"{self._prefix}{now_ms - self._month_start_ms:08X}"

    def _enter_month(self, now_ms: int) -> None:
        now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        days = calendar.monthrange(now.year, now.month)[1]
        self._month_start_ms = int(start.timestamp()) * 1000
        self._month_end_ms = self._month_start_ms + days * 86_400_000
