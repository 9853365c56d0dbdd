"""The door to object stores: S3, Google Cloud Storage, Azure Blob, and local ones for tests."""
