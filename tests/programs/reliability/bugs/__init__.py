"""Bugs on purpose: what the campaign must find, or it is not worth its time."""
