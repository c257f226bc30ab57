"""Messages by key and time."""
