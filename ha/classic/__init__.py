"""RocketMQ's replication: one master for ever, slaves that copy its log."""
