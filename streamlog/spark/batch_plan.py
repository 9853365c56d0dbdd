"""What a batch reads: from where the starting options say to where the ending ones do."""

import logging

from streamlog.arrow.log_view import OffsetRange
from streamlog.arrow.losses import LossReporter
from streamlog.arrow.subscription import Subscription
from streamlog.errors import OffsetOutOfRangeError
from streamlog.spark.planning import resolve_rule
from streamlog.spark.source_options import SourceOptions

__all__ = ["plan_batch"]

_log = logging.getLogger(__name__)


def plan_batch(view: Subscription, options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges of a batch, the ends as they are now.

    Args:
        view: The log.
        options: Where to start and to end.

    Raises:
        InvalidOptionError: Options for single partitions that do not fit those there are.
        OffsetOutOfRangeError: An offset outside of a partition, or a start behind the end.
    """
    fail = options.fail_on_data_loss
    start, start_losses = resolve_rule(view, options.starting, fail_on_data_loss=fail)
    end, end_losses = resolve_rule(view, options.ending, fail_on_data_loss=fail)
    LossReporter(fail=fail).report(start_losses + end_losses)
    held_back = view.describe_held_back()
    if held_back is not None:
        _log.warning("%s", held_back)
    ranges = []
    for partition, begin in start.offsets.items():
        stop = end.offsets[partition]
        if begin > stop and partition in options.ending.partitions and fail:
            raise OffsetOutOfRangeError(
                f"{options.ending.option} of {partition} lies before its start",
                offset=stop,
                expected=f"{begin} or more",
            )
        if begin < stop:
            ranges.append(OffsetRange(*partition, begin, stop))
    return ranges
