"""Verify and repair: every file of a log root checked against the others."""
