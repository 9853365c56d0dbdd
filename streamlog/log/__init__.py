"""One partition: append, read, open, producers, epochs; many partitions: manager, commits."""
