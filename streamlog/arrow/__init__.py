"""A log as Arrow record batches and tables, read and written without Spark."""
