"""One broker: requests, periodic tasks, registration."""
