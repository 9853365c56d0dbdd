"""The log cleaner: keeps the last record of each key. `CLEANER.md` has the rules."""
