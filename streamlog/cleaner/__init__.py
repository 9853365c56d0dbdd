"""The log cleaner: keeps the last record of each key. `CLEANER.md` in here has the rules."""
