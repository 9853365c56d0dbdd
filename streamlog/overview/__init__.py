"""What is in a log root, at a glance: one value, computed without reading the records."""
