"""Wheel and source archive, as they are published."""
