"""Kafka's configuration keys: declared once, parsed, validated, rendered."""
