"""Readers of a log, seen from outside: their lag, metrics for monitoring, and other offsets."""
