"""Consumer groups: who is in them, what each member reads, and which offsets they committed."""
