"""What opening a store does with what a stop, a crash or a cut left behind."""
