"""Seeded random logs, written by Kafka and by us, read by both, damaged, and opened by both.

    python -m tests.programs.compat.differential --cases 100000 --seed 1

A *case* is a number, from which everything in it is drawn:

    script    what happens to a partition, step by step: appends of every shape, transactions,
              batches of a leader elsewhere, rolls, truncations, closing and opening again
    life      the script played by Kafka's `UnifiedLog` and by our `PartitionLog`
    damage    what becomes of a copy of one of the directories before both open it

`comparison` says what must be equal, and where ours may differ since it keeps more.
"""
