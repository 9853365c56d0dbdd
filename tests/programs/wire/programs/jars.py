"""The jars that the Java programs need, fetched by the pins of `conf/jars-NAME.txt`."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.programs.compat.kafka import KafkaUnavailableError, broker_classpath, java
from tests.programs.wire.suites import ROOT

__all__ = ["command", "jars"]

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")


def jars(name: str) -> list[Path]:
    """Return the jars of `conf/jars-NAME.txt`; the first time they are fetched.

    Raises:
        KafkaUnavailableError: They cannot be fetched.
    """
    pins = (ROOT / "conf" / f"jars-{name}.txt").read_text("utf-8")
    folder = ROOT / ".cache" / "jars" / name
    if len(list(folder.glob("*.jar"))) < pins.count("--hash"):
        subprocess.run([sys.executable, ROOT / ".ci" / "fetch-jars", name], check=True)
    found = sorted(folder.glob("*.jar"))
    if len(found) < pins.count("--hash"):
        raise KafkaUnavailableError(f"the jars of {name} cannot be fetched")
    return found


def command(*names: str, options: tuple[str, ...] = QUICK) -> list[str]:
    """Return how Java is started with the broker's jars and those of these names."""
    folders = {str(jars(name)[0].parent / "*") for name in names}
    return [java(), *options, "-cp", ":".join([*sorted(folders), broker_classpath()])]
