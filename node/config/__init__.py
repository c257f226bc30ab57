"""The cluster file: read, checked, and cut into what each part has to know."""
