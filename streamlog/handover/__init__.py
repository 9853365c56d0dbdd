"""Hands a log root over to a Kafka broker as its log.dir, and takes it back; see `HANDOVER.md`."""
