"""`acks`: how many replicas must hold a record before its append is acknowledged."""

from enum import Enum

from streamlog.errors import InvalidOptionError

__all__ = ["Acks"]


class Acks(Enum):
    """When an append is acknowledged.

    Source: org.apache.kafka.clients.producer.ProducerConfig, `acks`.
    """

    NONE = 0  # a failure of the leader's disk is raised all the same
    LEADER = 1
    ALL = -1  # all replicas in sync hold it, and these are at least `min.insync.replicas`

    @classmethod
    def of(cls, acks: "str | int | Acks") -> "Acks":
        """Return the level of a number or a name: 0, 1, -1 or `all`.

        Raises:
            InvalidOptionError: There is no such level.
        """
        if isinstance(acks, Acks):
            return acks
        levels = {"0": cls.NONE, "1": cls.LEADER, "-1": cls.ALL, "all": cls.ALL}
        found = levels.get(str(acks).strip().lower())
        if found is None or isinstance(acks, bool):
            raise InvalidOptionError(
                "invalid value for acks", got=repr(acks), expected="0, 1 or all"
            )
        return found
