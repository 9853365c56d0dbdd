"""A log root in an object store, shared by a whole cluster. `BUCKET.md` specifies it."""
