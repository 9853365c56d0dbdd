"""Results and state of a walk over batch headers, shared by the kernel and its plain callers."""

from typing import Final

# Results; `kernels.find_batch` returns them.
FOUND: Final = 0
CONTINUE: Final = -1  # the batch is not among those whose headers are in the buffer
UNSOUND: Final = -2  # no batch of any format can start there
ENTRY_MISSED: Final = -3  # the batch that the index names does not exist

NO_PROMISE: Final = -1

# Places in the array that `kernels.find_batch` fills.
WALK_POSITION: Final = 0
WALK_PROMISED: Final = 1
WALK_BASE_OFFSET: Final = 2
WALK_LAST_OFFSET: Final = 3
WALK_SIZE: Final = 4
WALK_WIDTH: Final = 5
