"""Pages about a log: a report in one file, and a server on loopback that shows a log live."""
