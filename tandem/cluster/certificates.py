"""Certificates of a cluster: a CA of its own, and one certificate a node, signed by it.

    tls/ca.pem  ca.key         the CA: whoever has the key can be any node
    tls/NODE.pem  NODE.key     of each node, for all addresses at which it is dialled
    tls/coordinator.pem …      of the embedded coordinator, if a group needs it
    tls/client.pem  client.key of the command line; more with other names for other programs

Made with the library `cryptography`, which is an extra, `tandem-mq[tls]`: this module cannot be
imported without it.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tandem.cluster_file.coordinator_settings import COORDINATOR
from tandem.cluster_file.errors import ClusterError
from tandem.durable_file import write_durably
from tandem.tls_files import CLIENT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tandem.cluster_file.cluster_config import ClusterConfig

CA_NAME: Final = "ca"

CA_DAYS: Final = 3650
DAYS: Final = 365
RENEW_DAYS: Final = 30
"""A certificate that ends within this many days is made anew."""

CLOCK_SKEW: Final = dt.timedelta(hours=1)
"""A certificate counts from before it was made: the clocks of other machines may be behind."""


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class CertificateError(ClusterError):
    """Certificates cannot be made; the text says what to do."""


class Made(msgspec.Struct, frozen=True):
    """A certificate of the directory.

    Attributes:
        name: Of a node, `client`, or as asked for.
        file: The certificate.
        ends: When it ends.
        is_new: Whether it was made now.
    """

    name: str
    file: str
    ends: dt.datetime
    is_new: bool


def addresses_of(config: ClusterConfig) -> dict[str, set[str]]:
    """Return at which addresses each node is dialled: its own, its group's, and by other nodes."""
    addresses = {node.name: {node.address} for node in config.nodes}
    for node in config.nodes:
        for other, address in node.reach.items():
            if other in addresses:
                addresses[other].add(address)
        master_address = config.groups[node.group].master_address
        if master_address is not None:
            addresses[node.name].add(master_address.rpartition(":")[0])
    if config.has_embedded_coordinator:
        reached = {node.reach[COORDINATOR] for node in config.nodes if COORDINATOR in node.reach}
        addresses[COORDINATOR] = {config.coordinator.address, *reached}
    return addresses


def make_certificates(
    config: ClusterConfig,
    directory: Path,
    *,
    now: dt.datetime,
    days: int = DAYS,
    clients: Iterable[str] = (CLIENT_NAME,),
    renew: bool = False,
) -> list[Made]:
    """Make what is missing in `directory`, or ends soon, or with `renew` all but the CA.

    A renewed certificate has a new key. Files are replaced whole, the key first: a node that looks
    between the two sees that they do not fit, and looks again later.

    Raises:
        CertificateError: a client has the name of another, the key of the CA is missing, or a file
            cannot be written.
    """
    names = list(clients)
    for name in names:
        _check_name(name, taken={CA_NAME, COORDINATOR, *(node.name for node in config.nodes)})
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority.of(directory, config.cluster.name, now)
        wanted: dict[str, set[str]] = addresses_of(config) | {name: set() for name in names}
        made = [Made(CA_NAME, str(authority.file), authority.ends, authority.is_new)]
        for name, addresses in wanted.items():
            made.append(_of(directory, authority, name, addresses, now, days, renew=renew))
    except OSError as error:
        raise CertificateError(f"{error.filename}: {error.strerror}") from error
    return made


def _check_name(name: str, taken: set[str]) -> None:
    if not _NAME.fullmatch(name):
        raise CertificateError(
            f"{name!r} is no name of a client: 1 to 64 letters, digits, dots and hyphens of ASCII"
        )
    if name in taken:
        raise CertificateError(f"{name!r} is the name of the CA, of the coordinator, or of a node")


class Authority(msgspec.Struct, frozen=True):
    """The CA of one cluster."""

    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    is_new: bool

    @property
    def ends(self) -> dt.datetime:
        """When it ends, and all that it has signed with it."""
        return self.certificate.not_valid_after_utc

    @classmethod
    def of(cls, directory: Path, cluster: str, now: dt.datetime) -> Authority:
        """Return the CA in a directory; make it if there is none.

        Raises:
            CertificateError: its certificate is there and its key is not, or does not fit.
            OSError: a file cannot be read or written.
        """
        file, key_file = _files(directory, CA_NAME)
        if file.exists():
            certificate = _read_certificate(file)
            key = _read_key(key_file, file)
            if key.public_key() != certificate.public_key():
                raise CertificateError(f"{key_file} is not the key of {file}")
            return cls(file, certificate, key, is_new=False)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{cluster} CA")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + dt.timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        write_pair(directory, CA_NAME, certificate, key)
        return cls(file, certificate, key, is_new=True)

    def issue(
        self, name: str, addresses: Iterable[str], now: dt.datetime, days: int
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return a certificate, with a new key, for what has this name, at these addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        names += [x509.IPAddress(ipaddress.ip_address(each)) for each in sorted(addresses)]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(min(now + dt.timedelta(days=days), self.ends))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                    if addresses
                    else [ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificate, key


def _of(
    directory: Path,
    authority: Authority,
    name: str,
    addresses: set[str],
    now: dt.datetime,
    days: int,
    *,
    renew: bool,
) -> Made:
    file, key_file = _files(directory, name)
    if not renew and file.exists() and key_file.exists():
        present = _read_certificate(file)
        is_ours = present.issuer == authority.certificate.subject
        ends_soon = present.not_valid_after_utc < now + dt.timedelta(days=RENEW_DAYS)
        if is_ours and not ends_soon and _addresses(present) >= addresses:
            return Made(name, str(file), present.not_valid_after_utc, is_new=False)
    certificate, key = authority.issue(name, addresses, now, days)
    write_pair(directory, name, certificate, key)
    return Made(name, str(file), certificate.not_valid_after_utc, is_new=True)


def _usage(*, signs: bool) -> x509.KeyUsage:

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _addresses(certificate: x509.Certificate) -> set[str]:

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each) for each in names.get_values_for_type(x509.IPAddress)}


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.pem", directory / f"{name}.key"


def _read_certificate(file: Path) -> x509.Certificate:

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except ValueError as error:
        raise CertificateError(f"{file} holds no certificate; move it away") from error


def _read_key(key_file: Path, file: Path) -> ec.EllipticCurvePrivateKey:

    try:
        key = load_pem_private_key(key_file.read_bytes(), None)
    except FileNotFoundError as error:
        raise CertificateError(
            f"{file} is there and its key {key_file} is not: make certificates where the key is,"
            " and copy them here"
        ) from error
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{key_file} holds no key without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{key_file} holds no key of an elliptic curve")
    return key


def write_pair(
    directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    """Write a certificate and its key; each whole, the key first.

    Raises:
        OSError: the system refuses.
    """
    file, key_file = _files(directory, name)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_durably(key_file, text, is_private=True)
    write_durably(file, certificate.public_bytes(Encoding.PEM))
