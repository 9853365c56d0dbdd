"""Seeded random logs, written by Kafka and by us, read by both, damaged, and opened by both.

    python -m tests.programs.compat.differential --cases 100000 --seed 1

A *case* is a number, from which everything in it is derived:

    script    the steps of a partition: appends of every shape, transactions, batches of a
              remote leader, rolls, truncations, closing and reopening
    life      the script as executed by Kafka's `UnifiedLog` and by our `PartitionLog`
    damage    the damage to a copy of one of the directories before both open it

`comparison` states what must be equal, and where ours may differ because it keeps more.
"""
