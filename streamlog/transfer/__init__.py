"""Copying topics between log roots, in directories and in object stores."""
