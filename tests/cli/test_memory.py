"""The command's memory is bounded by what is asked of it, whatever a few bytes unfold to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.binary.compression import ZSTD, compress
from streamlog.binary.crc import crc32c
from streamlog.records.builder import encode_varlong
from streamlog.records.layout import ATTRIBUTES_OFFSET, BATCH_HEADER, CRC_OFFSET

MIB = 1 << 20
# Behind the command it prints the most memory that its process ever had.
RUN = """
import sys
from streamlog.cli.main import main
try:
    main(sys.argv[1:])
finally:
    sys.stdout.flush()
    with open("/proc/self/status") as status:
        print(next(line for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""


def bomb(offset: int, size: int, headers: int) -> bytes:
    """Return a batch of one record with a value and empty headers, as few bytes of zstd."""
    fields = b"\0\0\0\1" + encode_varlong(size) + bytes(size) + encode_varlong(headers)
    fields += b"\0\1" * headers
    payload = compress(ZSTD, encode_varlong(len(fields)) + fields)
    size = BATCH_HEADER.size - 12 + len(payload)
    batch = bytearray(
        BATCH_HEADER.pack(offset, size, 0, 2, 0, ZSTD, 0, 5, 5, -1, -1, -1, 1) + payload
    )
    crc = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:])
    batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return bytes(batch)


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of some 80 KB and 6 KB that unfold to 2.4 GB and to 31 million headers."""
    directory = tmp_path_factory.mktemp("bombs")
    for name, batches in (
        ("values-0", [bomb(at, 60 * MIB, 0) for at in range(40)]),
        ("headers-0", [bomb(0, 0, 31 * MIB)]),
    ):
        os.makedirs(directory / name)
        (directory / name / f"{0:020}.log").write_bytes(b"".join(batches))
    return directory


@pytest.mark.parametrize(
    ("name", "command", "most"),
    [
        ("values-0", ("cat", "--count", "1", "--output-format", "%o"), 450),
        ("values-0", ("verify", "--deep"), 500),
        ("headers-0", ("verify", "--deep"), 700),
    ],
)
def test_few_bytes_that_unfold_far_take_little_memory(
    partitions: Path, name: str, command: tuple[str, ...], most: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command, str(partitions / name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    peak = next(line for line in done.stderr.splitlines() if line.startswith("VmHWM"))
    assert done.returncode == 0, done.stderr
    assert int(peak.split()[1]) // 1024 < most
