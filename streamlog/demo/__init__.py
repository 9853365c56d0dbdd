"""`streamlog demo`: the promise of the package, shown on the reader's own machine in a minute."""
