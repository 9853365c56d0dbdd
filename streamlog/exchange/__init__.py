"""Topics to and from files and tables that other programs read: CSV, Parquet, Delta, Iceberg."""
