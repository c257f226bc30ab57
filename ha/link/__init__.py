"""What both kinds of replication link share."""
