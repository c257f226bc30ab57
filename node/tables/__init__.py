"""What a broker remembers beside its messages: topics, groups, offsets, clients."""
