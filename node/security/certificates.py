"""The certificates of a node: checked at its start, and read again when their files change.

start   --> a file that cannot be used ends it, with the name of the file
running --> a file has changed --+--> all fit and are believed: new connections have them
                                 +--> else a line in the log; those in memory are kept
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

import trio

from node.errors import ConfigError
from store.machine.network import Network
from store.machine.tell_once import TellOnce
from store.machine.tls_network import TLSNetwork, TLSTerms
from tandem.cluster_file.choices import ClientAuth, TLSMode
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.tls_files import TLSFileError

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""Between two looks at the files."""

ENDS_SOON_DAYS: Final = 14
"""A certificate that ends sooner is worth a line in the log, at the start and once a day."""

_DAY_SECONDS: Final = 86_400

_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


ALPN: Final = ["http/1.1", "h2"]
"""What a client may choose from. Those of gRPC offer `h2` alone; who also offers the other one
reads metrics, which are served without HTTP/2."""


class Certificates:
    """With what one node makes connections."""

    def __init__(
        self, config: NodeConfig, network: Network, wall_clock_ms: Callable[[], int]
    ) -> None:
        """Read the files of a node whose cluster speaks TLS.

        Raises:
            ConfigError: One cannot be used.
        """
        self._settings = config.cluster.tls
        self._serves_grpc = config.cluster.broker.grpc_enable
        self._files = config.tls_files
        self._addresses = [config.node.address]
        if config.group.master_address is not None:
            self._addresses.append(config.group.master_address.rpartition(":")[0])
        self._wall_clock_ms = wall_clock_ms
        self._told: TellOnce[str] = TellOnce()
        self._seen = self._files.seen()
        try:
            terms = self._read()
        except TLSFileError as error:
            raise ConfigError([f"{config.cluster.file}: tls: {error}"]) from error
        self.network: Final = TLSNetwork(network, terms)
        """The network with TLS."""

    async def watch(self) -> None:
        """Read the files again whenever they have changed, until cancelled."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if (seen := self._files.seen()) == self._seen:
                self._warn_if_it_ends_soon()
                continue
            try:
                self.network.terms = self._read()
            except TLSFileError as error:
                # A new key whose certificate is still to come; or a mistake.
                if self._told.is_news(str(error), about="files"):
                    _log.warning("certificates are not read again: %s", error)
                continue
            self._seen = seen
            self._told.over("files")
            _log.info(
                "certificates were read again; that of this node ends on %s",
                time.strftime("%Y-%m-%d", time.gmtime(self._end)),
            )

    def _read(self) -> TLSTerms:
        files, mode = self._files, self._settings.mode
        self._end = min(map(files.end_of_certificate, self._addresses))
        self._warn_if_it_ends_soon()
        accepting = files.server_context(_VERIFY[self._settings.client_auth])
        if self._serves_grpc:
            accepting.set_alpn_protocols(ALPN)
        return TLSTerms(
            accepting=accepting,
            dialling=files.client_context(),
            takes_clear=mode is TLSMode.PERMISSIVE,
            dials_clear=mode is TLSMode.PERMISSIVE,
        )

    def _warn_if_it_ends_soon(self) -> None:
        days = int((self._end - self._wall_clock_ms() / 1000) // _DAY_SECONDS)
        if days < ENDS_SOON_DAYS and self._told.is_news(str(days), about="end"):
            _log.warning(
                "%s %s: `tandem cluster certificates` makes another, which is read without a"
                " restart",
                self._files.certificate_file,
                f"ends in {days} days" if days >= 0 else "has ended, and nobody believes it",
            )
