"""Which messages a consumer wants by their properties: RocketMQ's SQL92 expressions."""
