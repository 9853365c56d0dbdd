"""The features of Kafka's clusters that are finalized here, each at one level.

Source: org.apache.kafka.server.common.Feature.
"""

from typing import Final

__all__ = ["FEATURES"]

FEATURES: Final = {"group.version": 1, "transaction.version": 2}
"""Clients then use the consumer protocol (KIP-848), and transactions of version 2 (KIP-890)."""
