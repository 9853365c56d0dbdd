"""Log roots: topics, registry, manager, readers, and a partition opened within its root."""
