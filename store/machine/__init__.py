"""What one machine gives to a node: disk, network, clocks. All else gets it as arguments."""
