"""The files of TLS: whom to trust, and who one is. PEM, as RocketMQ and OpenSSL have them.

TLSFiles(ca_file="tls/ca.pem").client_context()
"""

from __future__ import annotations

import enum
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tandem.wire.errors import ArgumentError
from tandem.wire.tls_engine import TLSEngine, why

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT_NAME: Final = "client"
"""Of the certificate of the command line, and of programs that have none of their own."""

_STEPS_MAX: Final = 5
"""Of a handshake: three are usual."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class TLSFileFault(enum.Enum):
    """Why a file of TLS cannot be used."""

    UNREADABLE = enum.auto()
    """It is missing, or the system does not let us read it; `__cause__` says which."""
    NOT_PEM = enum.auto()
    """It holds no certificate, or no key, in PEM."""
    EXPOSED = enum.auto()
    """Others than its owner may read it."""
    PASSWORD = enum.auto()
    """The key has a password, and none is given, or another one."""
    OTHER_KEY = enum.auto()
    """It is not the key of the certificate."""
    NOT_BELIEVED = enum.auto()
    """Whoever dials that address with the same CA would not believe the certificate."""


class TLSFileError(Exception):
    """A file of TLS cannot be used.

    Attributes:
        file: Which one.
        fault: Why.
    """

    def __init__(self, file: str, fault: TLSFileFault, reason: str) -> None:
        super().__init__(file, fault, reason)
        self.file = file
        self.fault = fault
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


class TLSFiles(msgspec.Struct, frozen=True):
    """Which certificates a client or a node believes, and which is its own.

    Attributes:
        ca_file: The certificates of those who sign for the others.
        certificate_file: Our own certificate, with the chain to a CA. A client may have none.
        key_file: Its key, PKCS #8; for the owner of the file alone.
        key_password_file: The file with the password of the key, if it has one.
        check_hostname: Whether a dialled address has to be in the certificate found there.
    """

    ca_file: str
    certificate_file: str = ""
    key_file: str = ""
    key_password_file: str = ""
    check_hostname: bool = True

    def __post_init__(self) -> None:
        """Raise ArgumentError for a certificate without a key, or a key without one."""
        if not self.ca_file:
            text = "ca_file is empty: without it nobody's certificate can be checked"
            raise ArgumentError(text, "ca_file")
        if bool(self.certificate_file) != bool(self.key_file):
            text = "certificate_file needs a key_file, and that one a certificate_file"
            raise ArgumentError(text, "certificate_file", "key_file")

    def client_context(self) -> ssl.SSLContext:
        """Return what a client dials with.

        Raises:
            TLSFileError: a file is missing, open to others, or not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname
        self._load(context)
        return context

    def server_context(self, verify_mode: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
        """Return what a node accepts with. `verify_mode`: whether clients show certificates.

        Raises:
            TLSFileError: a file is missing, open to others, or not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = verify_mode
        context.options |= ssl.OP_NO_RENEGOTIATION
        # A ticket saves a tenth of a handshake. A client that only sends does not read it, and its
        # kernel then ends the connection with a reset: what it sent last may be lost.
        context.num_tickets = 0
        self._load(context)
        return context

    def seen(self) -> list[tuple[int, int, int]]:
        """What tells that a file is another one than before."""
        found = []
        for file in (self.ca_file, self.certificate_file, self.key_file):
            try:
                status = Path(file).stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def end_of_certificate(self, host: str) -> float:
        """Return when our own certificate ends, in seconds since 1970, by showing it to ourselves.

        Raises:
            TLSFileError: whoever dials `host` with the same CA would not believe it; or a file
                cannot be used.
        """
        server = TLSEngine(self.server_context(ssl.CERT_NONE))
        client = TLSEngine(self.client_context(), server_name=host)
        said = b""
        try:
            for _ in range(_STEPS_MAX):
                if client.handshake(said):
                    break
                server.handshake(client.to_send())
                said = server.to_send()
        except ssl.SSLError as error:
            raise TLSFileError(
                self.certificate_file,
                TLSFileFault.NOT_BELIEVED,
                f"nobody who dials {host} would believe it: {why(error)}",
            ) from error
        return ssl.cert_time_to_seconds(client.peer_end)

    def _load(self, context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _expect_file(self.ca_file)
        try:
            context.load_verify_locations(self.ca_file)
        except (ssl.SSLError, OSError) as error:
            raise TLSFileError(
                self.ca_file, TLSFileFault.NOT_PEM, "holds no certificate in PEM"
            ) from error
        if not self.certificate_file:
            return
        _expect_file(self.certificate_file)
        _expect_file(self.key_file)
        _expect_private(self.key_file)
        try:
            # Without a password OpenSSL would ask at the terminal, and the process would stand.
            context.load_cert_chain(self.certificate_file, self.key_file, self._password)
        except (ssl.SSLError, OSError) as error:
            raise self._unusable(error) from error

    def _password(self) -> bytes:
        if not self.key_password_file:
            raise TLSFileError(
                self.key_file,
                TLSFileFault.PASSWORD,
                "has a password; name its file: key_password_file",
            )
        _expect_file(self.key_password_file)
        _expect_private(self.key_password_file)
        return Path(self.key_password_file).read_bytes().strip()

    def _unusable(self, error: Exception) -> TLSFileError:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            reason = f"is not the key of {self.certificate_file}"
            return TLSFileError(self.key_file, TLSFileFault.OTHER_KEY, reason)
        if self.key_password_file and getattr(error, "reason", "") != "NO_START_LINE":
            reason = f"cannot be read with the password in {self.key_password_file}"
            return TLSFileError(self.key_file, TLSFileFault.PASSWORD, reason)
        reason = f"and {self.key_file} are not a certificate and a key in PEM"
        return TLSFileError(self.certificate_file, TLSFileFault.NOT_PEM, reason)


class FreshContext:
    """A context that is made anew when its files have changed; the old one stays if that fails."""

    def __init__(self, files: TLSFiles, make: Callable[[], ssl.SSLContext]) -> None:
        """`make` is a method of `files`.

        Raises:
            TLSFileError: a file cannot be used.
        """
        self._files = files
        self._make = make
        self._seen = files.seen()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        """Return what a connection that begins now is made with."""
        if (seen := self._files.seen()) != self._seen:
            # A key whose certificate is still to come, or a mistake: what was good is good still.
            with suppress(TLSFileError):
                self._context = self._make()
                self._seen = seen
        return self._context


def _expect_file(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        reason = f"{error.strerror}; `tandem cluster certificates` makes those of a cluster"
        raise TLSFileError(file, TLSFileFault.UNREADABLE, reason) from error


def _expect_private(file: str) -> None:
    mode = Path(file).stat().st_mode
    if mode & _OTHERS:
        reason = f"may be read by others, its mode is {stat.S_IMODE(mode):04o}: chmod 600 {file}"
        raise TLSFileError(file, TLSFileFault.EXPOSED, reason)
