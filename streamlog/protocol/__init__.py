"""Kafka's schema-driven message codec and the records of its internal topics."""
