"""A CA for tests, and certificates that it has signed."""

import datetime as dt
import ssl
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tandem.cluster.certificates import Authority, write_pair
from tandem.tls_files import TLSFiles

NOW = dt.datetime.now(dt.UTC)


@cache
def authority(name: str = "test") -> tuple[Path, Authority]:
    """A CA, and the directory with its files."""
    directory = Path(mkdtemp(prefix="tandem-ca-"))
    return directory, Authority.of(directory, name, NOW)


@cache
def files(name: str = "node", *addresses: str, ca: str = "test", days: int = 30) -> TLSFiles:
    """The files of a node at these addresses; of 127.0.0.1 and 127.0.0.2 if none is given."""
    directory, signer = authority(ca)
    certificate, key = signer.issue(name, set(addresses or ("127.0.0.1", "127.0.0.2")), NOW, days)
    write_pair(directory, name, certificate, key)
    return TLSFiles(
        ca_file=str(directory / "ca.pem"),
        certificate_file=str(directory / f"{name}.pem"),
        key_file=str(directory / f"{name}.key"),
    )


@cache
def contexts(*, asks: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a node accepts with and what it dials with."""
    own = files()
    mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return own.server_context(mode), own.client_context()
