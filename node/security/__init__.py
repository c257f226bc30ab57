"""Who has sent a request, and what they may."""
