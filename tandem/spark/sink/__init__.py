"""The sink `tandem`: the rows of a DataFrame as messages of topics. See docs/spark-sink.md.

options, columns    what was asked for, checked on the driver before anything is sent
unique_key          the UNIQ_KEY of each row: the same one, however often it is sent
rows                Arrow batches to messages
packer              messages to requests
packed_rows         Arrow batches to requests, by columns: what most rows take
outbox              requests to brokers, bounded
committed           which micro-batches need not be sent again
writer              Spark's two classes around them
repeats             what a reader does about rows that were sent twice
"""
