"""Exactly once: stage, decide, apply, retire. `COMMITS.md` has the rules and every state."""
