"""The log as Arrow record batches and tables, without Spark."""
