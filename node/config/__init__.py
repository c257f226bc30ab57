"""The cluster file, cut into what each part of a node has to know."""
