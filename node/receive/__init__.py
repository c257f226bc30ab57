"""What a broker does for those that receive messages by POP, whatever protocol they speak."""
