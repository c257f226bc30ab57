"""Messages that are delivered later: delay levels and the timer wheel."""
