"""What a node shows of itself by HTTP: metrics, and whether it is well."""
