"""Topics within bounds: retention, deleted records, what readers hold, who runs it and when."""
