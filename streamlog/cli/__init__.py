"""The `streamlog` command. `commands` declares the verbs; the other modules do their work."""
