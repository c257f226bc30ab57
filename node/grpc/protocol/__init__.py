"""The messages of RocketMQ's gRPC protocol."""
