"""What Spark stores in a streaming query's checkpoint, read without pyspark."""
