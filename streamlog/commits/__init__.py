"""Exactly-once commits: stage, decide, apply, retire. `COMMITS.md` specifies rules and states."""
