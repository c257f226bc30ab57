"""Routes: which broker has which topic."""
