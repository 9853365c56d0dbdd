"""Values as columns: JSON, Avro and Protobuf decoded into Arrow arrays, whole columns at a time."""
