"""The versions of Spark, Python and pyarrow that streamlog is tried with."""
