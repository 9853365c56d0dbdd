"""Performance as ratios to a peer or to a limit, both measured in the same run."""
