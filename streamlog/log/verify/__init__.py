"""Is what lies on the disk sound? Looks at every byte and changes none."""
