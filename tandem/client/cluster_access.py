"""`ClusterAccess`: where a cluster is and which client asks, said once for every client of it."""

from collections.abc import Callable, Sequence

import msgspec

from tandem.client.core import ClientCore, parse_addresses
from tandem.client.credentials import Credentials
from tandem.client.identity import ClientIdentity
from tandem.client.running_machine import new_identity
from tandem.tls_files import FreshContext, TLSFiles
from tandem.wire.errors import ArgumentError
from tandem.wire.frame_seal import Signatures
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, operator_secret_key


class ClusterAccess(msgspec.Struct, frozen=True):
    """What a client has to know of its cluster. Every client takes one in place of the addresses.

        cluster = ClusterAccess("10.0.0.1:9876;10.0.0.2:9876", access_key="me", secret_key="...")
        with BlockingProducer(cluster, group="orders") as producer: ...

    Attributes:
        name_servers: the addresses of all of them, "host:port", as a list or as one text with `;`
            between them; each knows who registered there.
        access_key: with `secret_key`, who signs the requests, for brokers that ask for that.
        secret_key: its secret.
        secret: that of the cluster file, `tandem.cluster.read_spec(file).read_secret()`. Orders to
            nodes need it, questions do not.
        as_operator: sign every request as the operator, who knows `secret` and may everything. For
            clusters whose `security.clients` is not open; with an access key its user signs.
        identity: who the client is; default: this process, with a random number for each client.
        signatures: which signatures may be used in clear. "replay_proof": those alone that are good
            once, which RocketMQ's brokers do not know; requests to them are refused then. "any":
            RocketMQ's as well, which who has listened can send again. With TLS either is used.
        tls: whom to trust; with it every connection has TLS. Default: none has.
    """

    name_servers: str | Sequence[str]
    access_key: str = ""
    secret_key: str = ""
    secret: str = ""
    as_operator: bool = False
    identity: ClientIdentity | None = None
    signatures: str = Signatures.REPLAY_PROOF.value
    tls: TLSFiles | None = None

    def __post_init__(self) -> None:
        """Raise ArgumentError for what no client can use: no address, or only one of two keys."""
        # A value: equal to what says the same, and as it was whatever becomes of the list.
        msgspec.structs.force_setattr(
            self, "name_servers", tuple(parse_addresses(self.name_servers))
        )
        self.credentials()
        if self.signatures not in [each.value for each in Signatures]:
            text = f'signatures is {self.signatures!r}; write "replay_proof" or "any"'
            raise ArgumentError(text, "signatures")

    def __repr__(self) -> str:
        """Say where and who, never a secret: errors and logs show it."""
        given = [repr(";".join(self.addresses))]
        if self.access_key:
            given.append(f"access_key={self.access_key!r}, secret_key='***'")
        if self.secret:
            given.append("secret='***'")
        if self.as_operator:
            given.append("as_operator=True")
        if self.signatures != Signatures.REPLAY_PROOF:
            given.append(f"signatures={self.signatures!r}")
        if self.identity is not None:
            given.append(f"identity={self.identity!r}")
        if self.tls is not None:
            given.append(f"tls={self.tls!r}")
        return f"ClusterAccess({', '.join(given)})"

    @classmethod
    def of(cls, cluster: "str | Sequence[str] | ClusterAccess") -> "ClusterAccess":
        """Return what a client was given, or was given the addresses of."""
        return cluster if isinstance(cluster, ClusterAccess) else cls(cluster)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers, one by one."""
        return tuple(self.name_servers)

    def credentials(self) -> Credentials | None:
        """Return who signs the requests; None: nobody does."""
        if self.as_operator and self.secret and not self.access_key:
            return Credentials(OPERATOR_ACCESS_KEY, operator_secret_key(self.secret))
        return Credentials.of(self.access_key, self.secret_key)

    def core(
        self,
        clock: Callable[[], float],
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> ClientCore:
        """Return the core of one client.

        Raises:
            TLSFileError: a file of `tls` cannot be used.
        """
        return ClientCore(
            self.addresses,
            identity=self.identity or new_identity(self.addresses[0]),
            clock=clock,
            producer_group=producer_group,
            consumer_group=consumer_group,
            credentials=self.credentials(),
            signatures=Signatures(self.signatures),
            tls=None if self.tls is None else FreshContext(self.tls, self.tls.client_context),
        )


Cluster = str | Sequence[str] | ClusterAccess
"""What a client is given: the name servers, or a `ClusterAccess`."""
