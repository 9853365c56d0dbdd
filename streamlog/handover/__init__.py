"""A log root becomes the log.dir of a Kafka broker, and a root again. See `HANDOVER.md`."""
