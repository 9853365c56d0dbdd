"""Retention, compaction and housekeeping of a whole root, run between triggers."""
