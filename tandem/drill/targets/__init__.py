"""What a drill breaks: our own cluster, or RocketMQ's. `target` is what each of them offers."""
