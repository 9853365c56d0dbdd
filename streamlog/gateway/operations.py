"""What a client may do, as the bits that responses have for it: everything, without an authorizer.

Source: org.apache.kafka.common.acl.AclOperation, org.apache.kafka.security.authorizer.AclEntry.
"""

from typing import Final

__all__ = ["CLUSTER_OPERATIONS", "GROUP_OPERATIONS", "TOPIC_OPERATIONS", "operations"]

_NOT_ASKED: Final = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << bit for bit in range(9, 13)
)
_CONFIGS: Final = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
GROUP_OPERATIONS: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
CLUSTER_OPERATIONS: Final = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _CONFIGS | _IDEMPOTENT_WRITE
)


def operations(all_of_them: int, *, is_asked: bool) -> int:
    """Return the bits for a response: nothing but a placeholder if the client did not ask."""
    return all_of_them if is_asked else _NOT_ASKED
