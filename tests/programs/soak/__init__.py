"""The soak test: the whole system on one root, for a long time, with random kills."""
