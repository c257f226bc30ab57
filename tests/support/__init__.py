"""Stand-ins for disk, network and time, and the checks that keep them honest."""
