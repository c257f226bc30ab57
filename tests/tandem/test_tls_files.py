"""Each file of TLS that cannot be used is named, with what to do."""

import os
import pickle
import shutil
import ssl
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tandem.tls_files import FreshContext, TLSFileError, TLSFileFault, TLSFiles
from tandem.wire.errors import ArgumentError
from tests.support import certificates


@pytest.fixture
def files(tmp_path: Path) -> TLSFiles:
    """Files that a test may spoil."""
    good = certificates.files()
    return TLSFiles(
        ca_file=str(shutil.copy(good.ca_file, tmp_path)),
        certificate_file=str(shutil.copy(good.certificate_file, tmp_path)),
        key_file=str(shutil.copy(good.key_file, tmp_path)),
    )


def fault(files: TLSFiles) -> TLSFileError:
    with pytest.raises(TLSFileError) as caught:
        files.server_context(ssl.CERT_NONE)
    return caught.value


def test_good_files_are_good_at_the_addresses_of_the_certificate(files: TLSFiles) -> None:
    assert files.end_of_certificate("127.0.0.1") > certificates.NOW.timestamp()
    with pytest.raises(TLSFileError) as caught:
        files.end_of_certificate("10.9.8.7")
    assert caught.value.file == files.certificate_file
    assert caught.value.fault is TLSFileFault.NOT_BELIEVED
    assert "10.9.8.7" in str(caught.value)


@pytest.mark.parametrize("field", ["ca_file", "certificate_file", "key_file"])
def test_a_file_that_is_missing_is_named(files: TLSFiles, field: str) -> None:
    Path(getattr(files, field)).unlink()
    error = fault(files)
    assert (error.file, error.fault) == (getattr(files, field), TLSFileFault.UNREADABLE)


@pytest.mark.parametrize("field", ["ca_file", "certificate_file"])
@pytest.mark.parametrize("content", [b"", b"\xff\0", b"-----BEGIN CERTIFICATE-----\nxx\n"])
def test_a_file_that_is_no_pem_is_named(files: TLSFiles, field: str, content: bytes) -> None:
    Path(getattr(files, field)).write_bytes(content)
    error = fault(files)
    assert (error.file, error.fault) == (getattr(files, field), TLSFileFault.NOT_PEM)


def test_a_key_that_others_may_read_is_refused(files: TLSFiles) -> None:
    Path(files.key_file).chmod(0o640)
    error = fault(files)
    assert (error.file, error.fault) == (files.key_file, TLSFileFault.EXPOSED)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_key_of_another_certificate_is_refused(files: TLSFiles) -> None:
    shutil.copy(certificates.files("another").key_file, files.key_file)
    error = fault(files)
    assert (error.file, error.fault) == (files.key_file, TLSFileFault.OTHER_KEY)


def test_a_certificate_of_another_ca_is_believed_by_nobody(files: TLSFiles) -> None:
    shutil.copy(certificates.files(ca="another").ca_file, files.ca_file)
    with pytest.raises(TLSFileError) as caught:
        files.end_of_certificate("127.0.0.1")
    assert caught.value.fault is TLSFileFault.NOT_BELIEVED


def test_a_key_with_a_password_needs_the_file_with_it(files: TLSFiles, tmp_path: Path) -> None:
    """OpenSSL would ask at the terminal, and the node would stand."""
    key = load_pem_private_key(Path(files.key_file).read_bytes(), None)
    Path(files.key_file).write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open"))
    )
    assert fault(files).fault is TLSFileFault.PASSWORD
    password = tmp_path / "password"
    password.write_bytes(b"open\n")
    password.chmod(0o600)
    with_password = msgspec.structs.replace(files, key_password_file=str(password))
    with_password.server_context()
    password.write_bytes(b"wrong")
    error = fault(with_password)
    assert (error.file, error.fault) == (files.key_file, TLSFileFault.PASSWORD)
    password.chmod(0o644)
    error = fault(with_password)
    assert (error.file, error.fault) == (str(password), TLSFileFault.EXPOSED)


def test_what_can_never_work_is_refused_at_once() -> None:
    both = ("certificate_file", "key_file")
    for wrong, names in (
        (("", "", ""), ("ca_file",)),
        (("ca", "c", ""), both),
        (("ca", "", "k"), both),
    ):
        with pytest.raises(ArgumentError) as caught:
            TLSFiles(*wrong)
        assert caught.value.names == names


def test_a_client_needs_the_ca_only(files: TLSFiles) -> None:
    context = TLSFiles(files.ca_file).client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not TLSFiles(files.ca_file, check_hostname=False).client_context().check_hostname
    assert os.environ.get("SSLKEYLOGFILE") is None


def test_a_fresh_context_is_made_of_the_files_of_the_moment(files: TLSFiles) -> None:
    fresh = FreshContext(files, files.server_context)
    first = fresh()
    assert fresh() is first
    shutil.copy(certificates.files("another").key_file, files.key_file)
    assert fresh() is first  # it does not fit
    shutil.copy(certificates.files("another").certificate_file, files.certificate_file)
    second = fresh()
    assert second is not first
    Path(files.key_file).unlink()
    assert fresh() is second


def test_while_a_ca_is_replaced_both_are_believed(tmp_path: Path) -> None:
    old, new = certificates.files(), certificates.files(ca="another")
    both = tmp_path / "both.pem"
    both.write_bytes(Path(new.ca_file).read_bytes() + Path(old.ca_file).read_bytes())
    for own in (old, new):
        files = msgspec.structs.replace(own, ca_file=str(both))
        assert files.end_of_certificate("127.0.0.1") > certificates.NOW.timestamp()
