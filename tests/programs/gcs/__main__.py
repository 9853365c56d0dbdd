"""Roots on an emulator of Google Cloud Storage: `python -m tests.programs.gcs`.

The first run builds fake-gcs-server with go, which takes some minutes. No test of the gate does.
"""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", str(Path(__file__).with_name("promises.py")), *sys.argv[1:]]))
