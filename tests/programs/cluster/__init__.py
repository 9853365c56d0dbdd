"""A Spark cluster of several hosts, killed in every stage of the demo's jobs."""
