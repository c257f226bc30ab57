"""Commit logs as Spark tables, and the audit that judges a drill.

    from tandem.spark.session import local_session
    spark = local_session()                       # finds a Java, registers the source
    spark.read.format("commitlog").load("data/broker-a-0").show()

In a session of your own: `spark.dataSource.register(CommitLogDataSource)`, of
`tandem.spark.commitlog.source`.

Nothing is imported here: pyspark takes a second to import and 490 MB to install, and
`tandem.spark.audit.rules` needs neither.
"""
