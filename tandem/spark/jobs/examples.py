"""An example of the file of each job, with a comment for every key."""

from collections.abc import Mapping
from typing import Final

_MASTER: Final = """\
# Where Spark runs: local[*] is this machine with all its cores, spark://HOST:7077 a cluster.
master: local[*]
"""

EXAMPLES: Final[Mapping[str, str]] = {
    "archive": """\
# tandem pipeline archive: closed log files of stores into a Parquet archive, verified.
# Relative paths count from this file.

# The directory of the archive. The job makes it.
archive: archive

# One store of each group, by the group's name. All nodes of a group hold the same log: name one.
stores:
  broker-a: data/broker-a-0

# Topics that are left out. A log file with such messages is never said to be deletable.
exclude_topics: []

# The last file of a log, which a node may be writing to: leave it, or take what is in it. Take it
# only from a store that nobody writes to any more.
open_file: leave

# When the store has deleted what was not archived yet: fail, or continue without it.
on_data_loss: fail

# The Iceberg table that the archive is, as NAMESPACE.NAME; none if it is empty. It takes
# pip install 'tandem-mq[iceberg]'.
table: ""

# Where the table is known, as properties of a catalogue of PyIceberg; without them in a file of
# SQLite in the archive. Secrets do not belong here: PYICEBERG_CATALOG__TANDEM__TOKEN is read, too.
# catalogue: {type: rest, uri: "http://10.0.0.9:8181"}
catalogue: {}

"""
    + _MASTER,
    "replay": """\
# tandem pipeline replay: a window of a topic, out of an archive or a log, into a topic again.

# Where the job notes how far it is. The same directory goes on, another one begins again.
state: replay-state

# Read from an archive, or from stores by group (one of the two).
archive: archive
# stores: {broker-a: data/broker-a-0}

# What is read, and where to; without `topic` it is the same one.
source_topic: orders
topic: orders-again
name_servers: [127.0.0.1:9876]

# Who sends, in a cluster with users: TANDEM_ACCESS_KEY and TANDEM_SECRET_KEY of the environment.

# For a cluster with TLS: whom to believe, and who this is if nodes ask. Needed where tasks run.
# tls: {ca_file: tls/ca.pem, certificate_file: tls/client.pem, key_file: tls/client.key}

# Which messages: queue ids, store times (milliseconds, or 2026-01-31T12:00:00Z; the end is not
# included), queue offsets by queue id, tags, keys. What is left out means all.
queues: []
starting_timestamp: ""
ending_timestamp: ""
starting_offsets: {}
ending_offsets: {}
tags: []
keys: []

# Not more than this a second, all brokers together; 0 is no limit.
messages_per_second: 1000
bytes_per_second: 0

# UNIQ_KEY of what is sent: new ones, which are the same when a replay repeats itself, or the old.
unique_keys: new

# How many messages are acknowledged before the state is written.
checkpoint_messages: 5000
producer_group: tandem-replay

"""
    + _MASTER,
    "audit": """\
# tandem pipeline audit: every send of a ledger against the logs of all nodes of a group.

# A Parquet file as `tandem drill` writes it.
ledger: report/ledger.parquet

# The store of every node, by its name, and which one is the master.
stores:
  broker-a-0: data/broker-a-0
  broker-a-1: data/broker-a-1
master_node: broker-a-0
topic: drill

# The table `audit` is written here.
output: report

"""
    + _MASTER,
    "stats": """\
# tandem pipeline stats: counts, bytes, sizes, keys, delays and producers by queue and hour.

# Read from an archive, or from stores by group (one of the two).
archive: archive
# stores: {broker-a: data/broker-a-0}

# Which topics (all of them if the list is empty), and store times.
topics: []
starting_timestamp: ""
ending_timestamp: ""

# A Parquet file for the figures; nothing is written if it is empty.
output: ""

"""
    + _MASTER,
    "compact": """\
# tandem pipeline compact: of each key of a queue the latest message.

archive: archive
topics: [orders]

# The directory of the result. The job makes it.
output: compacted

# A message with an empty body, or with a property TOMBSTONE, says that its key is gone: drop it in
# the end, or keep it.
tombstones: drop

"""
    + _MASTER,
    "scrub": """\
# tandem pipeline scrub: an archive into another one, without what is not to be kept.

archive: archive
output: scrubbed

# Topics that go into the new archive; all of them if the list is empty.
topics: []

# Properties, and fields of JSON bodies (customer.email; in lists, of every element).
drop_properties: [session]
hash_properties: []
drop_fields: [customer.phone]
hash_fields: [customer.email]

# What hashes are salted with. `openssl rand -hex 32 > salt; chmod 600 salt`
salt_file: salt

# A message whose body is no JSON, while fields are named: fail, keep or drop.
not_json: fail

"""
    + _MASTER,
}
