"""Settings of all tests: how hard hypothesis tries.

`HYPOTHESIS_PROFILE` chooses: `fast` (default) tries the same examples every time, `full` and
`night` other ones, and more of them. No profile has a deadline: kernels compile at first use.
"""

import os

from hypothesis import settings

settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=1_000)
settings.register_profile("night", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
