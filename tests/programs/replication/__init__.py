"""The replication protocol against a published specification of it."""
