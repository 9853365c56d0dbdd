"""Three roots with the same logs: copies made by hand, so that one can be lost or damaged."""

import os
import shutil

__all__ = ["Copies"]


class Copies:
    """A root `a` that is written to, and copies `b` and `c` of it, brought up to date by `copy`.

    Args:
        root: The root, a `tests.support.log_root.Root`, with its topics.
        home: The directory for the copies.
    """

    def __init__(self, root, home):
        self.home = str(home)
        self.paths = [root.path, f"{home}/b", f"{home}/c"]
        self.copy()

    @property
    def text(self):
        """The paths as an option: separated by commas."""
        return ",".join(self.paths)

    def copy(self, *names):
        """Copy everything from `a` to `b` and `c`, or to those named."""
        for path in self.paths[1:]:
            if not names or os.path.basename(path) in names:
                shutil.copytree(self.paths[0], path, dirs_exist_ok=True)

    def lose(self, number):
        """Rename a root away."""
        os.rename(self.paths[number], self.paths[number] + "-away")

    def unmount(self, number):
        """Leave an empty directory, as an unmounted disk does."""
        self.lose(number)
        os.mkdir(self.paths[number])

    def bring_back(self, number):
        """Undo `lose`."""
        os.rename(self.paths[number] + "-away", self.paths[number])

    def restore(self):
        """Bring back all roots that are lost."""
        for number, path in enumerate(self.paths):
            if os.path.exists(path + "-away"):
                shutil.rmtree(path, ignore_errors=True)
                self.bring_back(number)

    def damage(self, number, partition="orders-0", at=-1):
        """Flip a byte of a log."""
        directory = f"{self.paths[number]}/{partition}"
        log = next(name for name in sorted(os.listdir(directory)) if name.endswith(".log"))
        with open(f"{directory}/{log}", "r+b") as file:
            data = bytearray(file.read())
            data[at] ^= 0xFF
            file.seek(0)
            file.write(data)
