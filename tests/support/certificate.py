"""A certificate of its own authority for 127.0.0.1."""

import subprocess
from pathlib import Path

__all__ = ["make_certificate"]


def make_certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate in a directory; return its path and that of its key."""
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", names, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
