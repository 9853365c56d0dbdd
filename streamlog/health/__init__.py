"""Verification and repair of roots, partitions and files."""
