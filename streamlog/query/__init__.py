"""What a streaming query of Spark keeps in its checkpoint, read without pyspark."""
