"""The example of both histories prints exactly these tables."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "replica_histories.py"

EXPECTED = """\
An acknowledged record is lost (old: truncate to the high watermark)
  1 B appends m1, A fetches it                        A  m1@0        HW 0       B* m1@0        HW 1
  2 B appends m2, A receives it with HW 1             A  m1@0 m2@0   HW 1       B* m1@0 m2@0   HW 1
  3 A fetches offset 2: m2 is acknowledged            A  m1@0 m2@0   HW 1       B* m1@0 m2@0   HW 2
  4 A restarts                                        A  m1@0        HW 1       B* m1@0 m2@0   HW 2
  5 B dies, A leads in epoch 1                        A* m1@0        HW 1       B  down
  6 B is back                                         A* m1@0        HW 1       B  m1@0 m2@0   HW 2
  => m2@0 was acknowledged, synced everywhere, and is LOST
  => the logs have DIVERGED, and no later step detects it

An acknowledged record is lost (now: truncate by leader epochs)
  1 B appends m1, A fetches it                        A  m1@0        HW 0       B* m1@0        HW 1
  2 B appends m2, A receives it with HW 1             A  m1@0 m2@0   HW 1       B* m1@0 m2@0   HW 1
  3 A fetches offset 2: m2 is acknowledged            A  m1@0 m2@0   HW 1       B* m1@0 m2@0   HW 2
  4 A restarts, asks for the end of epoch 0: 2        A  m1@0 m2@0   HW 1       B* m1@0 m2@0   HW 2
  5 B dies, A leads in epoch 1                        A* m1@0 m2@0   HW 2       B  down
  6 B is back, asks for the end of epoch 0: 2         A* m1@0 m2@0   HW 2       B  m1@0 m2@0   HW 2
  => the logs are the same, and no synced record is lost

Two logs diverge (old: truncate to the high watermark)
  1 both have m1 and m2, m2 is not synced on B        A* m1@0 m2@0   HW 2       B  m1@0 m2@0   HW 1
  2 power cut: B loses m2                             A  down                   B  down
  3 B starts first, leads in epoch 1, appends m3      A  down                   B* m1@0 m3@1   HW 2
  4 A follows                                         A  m1@0 m2@0   HW 2       B* m1@0 m3@1   HW 2
  5 A fetches                                         A  m1@0 m2@0   HW 2       B* m1@0 m3@1   HW 2
  => the logs have DIVERGED, and no later step detects it

Two logs diverge (now: truncate by leader epochs)
  1 both have m1 and m2, m2 is not synced on B        A* m1@0 m2@0   HW 2       B  m1@0 m2@0   HW 1
  2 power cut: B loses m2                             A  down                   B  down
  3 B starts first, leads in epoch 1, appends m3      A  down                   B* m1@0 m3@1   HW 2
  4 A follows, asks for the end of epoch 0: 1         A  m1@0        HW 1       B* m1@0 m3@1   HW 2
  5 A fetches                                         A  m1@0 m3@1   HW 2       B* m1@0 m3@1   HW 2
  => the logs are the same, and no synced record is lost

Fetch before produce
  message                                    leader: LEO  remote LEO  HW    follower: LEO  HW
  (start)                                              0           ?   0               0   0
  fetch from offset 0, parked                          0           0   0               0   0
  answer: nothing, HW 0                                0           0   0               0   0
  produce m1                                           1           0   0               0   0
  fetch from offset 0                                  1           0   0               0   0
  answer: m1@0, HW 0                                   1           0   0               1   0
  fetch from offset 1, parked                          1           1   1               1   0
  answer: nothing, HW 1                                1           1   1               1   1

Parked fetch
  message                                    leader: LEO  remote LEO  HW    follower: LEO  HW
  (start)                                              0           ?   0               0   0
  fetch from offset 0, parked                          0           0   0               0   0
  produce m1                                           1           0   0               0   0
  answer: m1@0, HW 0                                   1           0   0               1   0
  fetch from offset 1, parked                          1           1   1               1   0
  produce m2                                           2           1   1               1   0
  answer: m2@0, HW 1                                   2           1   1               2   1
  fetch from offset 2, parked                          2           2   2               2   1
  answer: nothing, HW 2                                2           2   2               2   2

* leads. A record is written as message@epoch; records below HW are committed.
"""


def test_the_example_prints_both_histories_and_the_step_tables():
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stderr == ""
    assert run.stdout == EXPECTED
