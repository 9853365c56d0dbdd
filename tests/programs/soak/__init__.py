"""The soak: everything at once on one root, for long, and killed at random."""
