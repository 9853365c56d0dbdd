"""The one door to the disk: what the engine may do to files, and what each call promises."""
