"""Messages in and out: the rules of a put, of a read, of a message sent back."""
