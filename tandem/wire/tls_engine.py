"""One end of a TLS connection without a socket: bytes come in, bytes go out.

    received --> handshake / decrypt --> plain bytes
    plain bytes --> encrypt --> `to_send`

The protocol is OpenSSL's, by `ssl.SSLObject` over two `ssl.MemoryBIO`. So the same connection runs
under trio, under asyncio, between two functions of a test, and on a simulated network.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final

PLAIN_BYTES_MAX: Final = 16_384
"""Plain bytes of one record. Source: RFC 8446, 5.1."""


def speaks_tls(first: bytes) -> bool:
    """Whether the first bytes of a connection are those of TLS.

    Source: NettyRemotingServer.TlsModeHandler.
    """
    return first[:1] == b"\x16"


class TLSEngine:
    """One end of one connection.

    All methods raise `ssl.SSLError` when the peer breaks the protocol or is not trusted. What has
    to be sent then, an alert, is in `to_send`.

    Attributes:
        is_over: The peer has said that nothing follows, by its close_notify.
    """

    def __init__(self, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        """Begin. `server_name`: whom a client dials; None: this is the server."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        self.is_over = False

    def handshake(self, received: bytes) -> bool:
        """Go on with the handshake; return whether it is through. A client begins with b""."""
        self._incoming.write(received)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def decrypt(self, received: bytes) -> bytes:
        """Return what is plain by now. It is never more than what was received."""
        incoming, tls = self._incoming, self._object
        incoming.write(received)
        parts: list[bytes] = []
        # A call that finds no whole record costs more than the question.
        while incoming.pending or tls.pending():
            try:
                part = tls.read(PLAIN_BYTES_MAX)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                self.is_over = True
                break
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return what has to be sent for `data`, and what had to be sent before it."""
        written = self._object.write(data)
        if written < len(data):
            # A call writes one record.
            with memoryview(data) as view:
                while written < len(view):
                    with view[written:] as rest:
                        written += self._object.write(rest)
        return self._outgoing.read()

    @property
    def has_to_send(self) -> bool:
        """Whether the protocol itself has something to say."""
        return self._outgoing.pending > 0

    def to_send(self) -> bytes:
        """Return what the protocol itself has to say: handshake, tickets, alerts."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return what tells the peer that nothing follows."""
        # The peer has not said the same yet, or never will.
        with suppress(ssl.SSLError):
            self._object.unwrap()
        return self._outgoing.read()

    @property
    def peer_name(self) -> str | None:
        """The common name of the peer's certificate; None if it showed none that we trust."""
        for name in self._certificate.get("subject", ()):
            for key, value in name:
                if key == "commonName":
                    return str(value)
        return None

    @property
    def peer_end(self) -> str:
        """When the peer's certificate ends, as `ssl.cert_time_to_seconds` takes it."""
        return str(self._certificate["notAfter"])

    @property
    def _certificate(self) -> dict[str, Any]:
        return self._object.getpeercert() or {}


def why(error: ssl.SSLError) -> str:
    """Say in words what went wrong, without the place in OpenSSL's sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = error.reason or str(error)
    return _WORDS.get(reason, reason.lower().replace("_", " "))


_WORDS: Final = {
    "WRONG_VERSION_NUMBER": "the other end speaks no TLS",
    "HTTP_REQUEST": "the other end speaks no TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and one is asked for",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other end asks for a certificate, and there is none",
    "TLSV1_ALERT_UNKNOWN_CA": "the other end does not trust our certificate: another CA signed it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other end does not trust our certificate",
    "UNSUPPORTED_PROTOCOL": "it offers only TLS 1.1 or older",
}
