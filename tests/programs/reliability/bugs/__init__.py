"""Seeded bugs, which show that the campaign detects faults."""
