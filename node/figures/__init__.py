"""What there is to know of a broker, as numbers with names: for metrics, and RocketMQ's tools."""
