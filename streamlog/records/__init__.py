"""Record batches: layout, views, columns, building, checking."""
