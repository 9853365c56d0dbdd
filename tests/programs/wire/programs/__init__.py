"""Programs that use Kafka, run against a gateway: tools, stream processors, connectors, a screen.

A program is a function that takes an empty directory, runs the real program there, checks what it
did and returns one line about it. `PROGRAMS` of each module names them; `__main__` runs them.
"""
