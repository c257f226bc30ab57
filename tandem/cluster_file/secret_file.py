"""The file with the secret that all givers of orders to a cluster know.

A cluster file that names none has one all the same: `secret` in the data directory, made by
whichever process of the cluster starts first there. It is for its owner alone: the nodes, the
supervisor and the command line of one user.

A file that is made here has a checksum in its last line (`tandem.wire.checksum_line`), whatever its
name is: a copy on another machine may have another one. Without it a changed byte would be another
secret, which nodes of other machines and clients do not have. A file that a person has written is
the secret as it is.
"""

from __future__ import annotations

import enum
import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tandem.cluster_file.errors import ClusterConfigError
from tandem.wire.checksum_line import ChecksumError, with_checksum, without_checksum
from tandem.wire.untrusted import UnreadableError, decode_text

if TYPE_CHECKING:
    from pathlib import Path

SECRET_NAME: Final = "secret"
"""Of the file in the data directory that is made where the cluster file names none."""

SECRET_BYTES_MIN: Final = 16
SECRET_FILE_BYTES_MAX: Final = 65_536

_RANDOM_BYTES: Final = 32
_IF_MISSING: Final = (
    "copy it there from another machine of the cluster, or name the file of a cluster that has been"
    " started here"
)
_IF_CHANGED: Final = (
    "copy it there from another machine of the cluster, or from a backup; who has changed it by"
    " hand removes its last line; without a copy remove the file: the next start makes another"
    " secret, and clients need new credentials"
)
_RUINED_LINE: Final = re.compile(rb'(?s)\{"crc32":"|\n.{10}[0-9a-f]{8}"\}\n\Z')
"""What is left of a checksum after one byte of the line has changed."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SecretFault(enum.Enum):
    """What is wrong with a secret."""

    UNREADABLE = enum.auto()
    """The system does not let us read it, or it is no text."""
    MISSING = enum.auto()
    NOT_A_FILE = enum.auto()
    OPEN_TO_OTHERS = enum.auto()
    CHANGED = enum.auto()
    TOO_SHORT = enum.auto()
    TOO_LONG = enum.auto()
    NOT_MADE = enum.auto()
    """See `SecretNotMadeError`."""


class SecretFileError(ClusterConfigError):
    """A secret cannot be used; the text names the file, and what to do. `fault` says why."""

    def __init__(self, text: str, fault: SecretFault) -> None:
        super().__init__(text)
        self.args = (text, fault)
        self.fault = fault

    def __str__(self) -> str:
        return self.problems[0]


class SecretNotMadeError(SecretFileError):
    """The directory takes no new file."""


def read_secret(file: Path, *, called: str = "") -> str:
    """Return the secret in a file; `called` is how a person calls the file.

    Raises:
        SecretFileError: It is not there, not a regular file, open to others, too short or too long,
            or has changed since it was made.
    """
    name = called or str(file)
    data = read_private(file, name, if_missing=_IF_MISSING).encode()
    try:
        secret = secret_in(data)
    except UnreadableError as error:
        raise SecretFileError(f"{name}: {error}; {_IF_CHANGED}", SecretFault.CHANGED) from error
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise SecretFileError(
            f"{name} holds less than {SECRET_BYTES_MIN} bytes: too easy to guess;"
            " `openssl rand -hex 32` makes a good one",
            SecretFault.TOO_SHORT,
        )
    return secret


def secret_in(data: bytes) -> str:
    """Return the secret that is the content of a file.

    Raises:
        UnreadableError: It does not fit its checksum (ChecksumError), or is no text.
    """
    text, has_checksum = without_checksum(SECRET_NAME, data)
    if not has_checksum and _RUINED_LINE.search(data):
        raise ChecksumError("its checksum cannot be read: a byte of it has changed")
    return decode_text(text).strip()


def read_private(file: Path, name: str, *, if_missing: str = "give a file of text") -> str:
    """Return the text of a file that is for its owner alone; `name` is what errors call it.

    `if_missing` is what to do where there is no such file.

    Raises:
        SecretFileError: It is not there, not a regular file, open to others or too long.
    """
    try:
        # Not blocking: a pipe that nobody writes to would otherwise hold us up for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        remedy, fault = "give a file of text", SecretFault.UNREADABLE
        if isinstance(error, FileNotFoundError):
            remedy, fault = if_missing, SecretFault.MISSING
        raise SecretFileError(
            f"{name} cannot be read: {error.strerror}; {remedy}", fault
        ) from error
    try:
        _check(os.fstat(descriptor), name)
        with os.fdopen(descriptor, "rb", closefd=False) as source:
            data = source.read(SECRET_FILE_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{name} cannot be read: {error}; give a file of text"
        raise SecretFileError(text, SecretFault.UNREADABLE) from error
    finally:
        os.close(descriptor)
    if len(data) > SECRET_FILE_BYTES_MAX:
        raise SecretFileError(
            f"{name} holds more than {SECRET_FILE_BYTES_MAX} bytes: that is no secret;"
            " `openssl rand -hex 32` makes a good one",
            SecretFault.TOO_LONG,
        )
    return text


def _check(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        text = f"{name} is not a regular file; give a file of text"
        raise SecretFileError(text, SecretFault.NOT_A_FILE)
    if status.st_mode & _OTHERS:
        raise SecretFileError(
            f"{name} has mode {stat.S_IMODE(status.st_mode):04o}: others may read or change it;"
            f" `chmod 600 {name}`, and take a new secret if somebody may have read it",
            SecretFault.OPEN_TO_OTHERS,
        )


def make_secret(file: Path) -> None:
    """Make a file with a random secret, unless there is one. It appears whole or not at all.

    Raises:
        SecretNotMadeError: It cannot be written.
    """
    if file.exists():
        return
    draft = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as target:
                secret = secrets.token_hex(_RANDOM_BYTES).encode()
                target.write(with_checksum(SECRET_NAME, secret))
                target.flush()
                os.fsync(descriptor)
            # Another process of this cluster may have been faster: then its secret is the one.
            with suppress(FileExistsError):
                os.link(draft, file)
                _sync_names(file.parent)
        finally:
            draft.unlink()
    except OSError as error:
        raise SecretNotMadeError(
            f"{file.parent}: the secret of the cluster cannot be made there: {error}",
            SecretFault.NOT_MADE,
        ) from error


def _sync_names(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
