"""One partition's log: append, read, recover, lock, epochs, producers."""
