"""Bytes: varints, checksums, compression, and the one door to numba."""
