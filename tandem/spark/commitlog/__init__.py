"""The source `commitlog`: the log files of stores, ours or RocketMQ's, as a table."""
