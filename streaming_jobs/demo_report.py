"""The report at the end of the demo: rows, duplicates, losses, and the carriers' delays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import streamlog
from streaming_jobs.flights import ROWS, read_flights


def rows_in_log(root: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the row number of every flight in the topic, in no particular order."""
    numbers = []
    for batch in streamlog.read_arrow(root, topic="flights", columns=["value"]):
        values = batch.column("value").to_pylist()
        numbers += [json.loads(value)["row"] for value in values]
    rows = np.array(numbers, np.int64)
    return rows[rows >= 0]


def expected_delays() -> pd.DataFrame:
    """Return flights, departures and total delay per carrier, computed from the input."""
    grouped = read_flights().groupby("carrier")
    return pd.DataFrame(
        {
            "flights": grouped.size(),
            "departed": grouped.dep_delay.count(),
            "total_delay": grouped.dep_delay.sum(),
        }
    )


def expected_windows() -> int:
    """Return the number of (hour, carrier) pairs in the input."""
    return len(read_flights()[["time_hour", "carrier"]].drop_duplicates())


def latest_aircraft(root: Path) -> tuple[int, int]:
    """Return the number of aircraft in the topic `aircraft`, and the expected number."""
    table = streamlog.read_table(root / "aircraft-0", columns=["key"])
    return len(table.column("key").unique()), read_flights().tailnum.nunique()


def check_and_print(directory: Path, *, seconds: float, killed_at: int) -> bool:
    """Count, compare and print; return whether everything matches."""
    root = directory / "root"
    rows = rows_in_log(root)
    distinct = np.unique(rows)
    duplicates, lost = len(rows) - len(distinct), ROWS - len(distinct)
    hourly = pd.read_parquet(directory / "delays.parquet")
    found = hourly.groupby("carrier")[["flights", "departed", "total_delay"]].sum()
    expected = expected_delays()
    same = found.index.equals(expected.index) and bool(
        np.array_equal(found.to_numpy(float), expected[found.columns].to_numpy(float))
    )
    windows, windows_expected = len(hourly), expected_windows()
    known, known_expected = latest_aircraft(root)
    sound = (
        duplicates == lost == 0 and same and windows == windows_expected and known == known_expected
    )
    console = Console()
    console.print(_delays_table(found, expected))
    facts = Table(title="Killed in the middle, restarted from the checkpoints", show_header=False)
    facts.add_row("rows in", f"{ROWS:,}")
    facts.add_row("rows in log", f"{len(rows):,}")
    facts.add_row("records in log when the JVM was killed", f"{killed_at:,}")
    facts.add_row("duplicates", f"{duplicates:,}")
    facts.add_row("lost", f"{lost:,}")
    facts.add_row("windows in the table", f"{windows:,} of {windows_expected:,}")
    facts.add_row("delays equal a plain aggregation", "yes" if same else "NO")
    facts.add_row("aircraft with a latest flight", f"{known:,} of {known_expected:,}")
    facts.add_row("time taken", f"{seconds:.0f} s")
    console.print(facts)
    print("Explore the result:")
    for command in (
        f"streamlog --path {root} topics describe flights",
        f"streamlog --path {root} cat flights --count 3",
        f"streamlog --path {root} offsets flights",
    ):
        print(f"  .venv/bin/{command}")
    return sound


def _delays_table(found: pd.DataFrame, expected: pd.DataFrame) -> Table:
    table = Table(title="Mean departure delay per carrier, from the table")
    for column in ("carrier", "flights", "mean delay (min)", "plain aggregation"):
        table.add_column(column, justify="left" if column == "carrier" else "right")
    for carrier, row in found.iterrows():
        plain = expected.loc[carrier]
        table.add_row(
            str(carrier),
            f"{int(row.flights):,}",
            f"{row.total_delay / row.departed:.2f}",
            f"{plain.total_delay / plain.departed:.2f}",
        )
    return table
