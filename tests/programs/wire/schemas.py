"""Generate `streamlog/protocol/apis.json` from the message definitions that Kafka publishes.

    python -m tests.programs.wire.schemas [--check]

The definitions lie in Kafka's client library (`common/message/*.json`). Only what encoding and
decoding need is taken: names, types, versions, tags, defaults. `--check` writes nothing.
"""

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

from tests.programs.compat.kafka import client_jar

_TARGET: Final = Path(__file__).parents[3] / "streamlog/protocol/apis.json"
_HEADERS: Final = ("RequestHeader", "ResponseHeader")
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)


def generate(jar: Path) -> str:
    """Return the text of `apis.json` for the definitions in a jar of Kafka's clients."""
    messages: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                message = json.loads(_COMMENT.sub("", archive.read(name).decode()))
                messages[message["name"]] = message
    headers = {name: _message(messages[name]) for name in _HEADERS}
    apis = {}
    for name, request in messages.items():
        if request["type"] != "request" or "broker" not in request.get("listeners", ()):
            continue
        api = name.removesuffix("Request")
        response = messages[f"{api}Response"]
        apis[api] = {
            "key": request["apiKey"],
            "unstable": request.get("latestVersionUnstable", False),
            "request": _message(request),
            "response": _message(response),
        }
    lines = [f'{{"source": {json.dumps(jar.name)},', '"headers": {']
    lines.append(",\n".join(f'"{name}": {_text(headers[name])}' for name in headers) + "},")
    lines.append('"apis": {')
    ordered = sorted(apis.items(), key=lambda each: each[1]["key"])
    lines.append(",\n".join(f'"{name}": {_text(api)}' for name, api in ordered) + "}}")
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _message(message: dict[str, Any]) -> dict[str, Any]:
    structures = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    return {
        "versions": message["validVersions"],
        "flexible": message.get("flexibleVersions", "none"),
        "fields": [_field(each, structures) for each in message["fields"]],
    }


def _field(field: dict[str, Any], structures: dict[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    out = {"name": field["name"][0].lower() + field["name"][1:], "type": kind}
    out["versions"] = field.get("versions", field.get("taggedVersions"))
    for key, name in (
        ("nullableVersions", "nullable"),
        ("tag", "tag"),
        ("flexibleVersions", "flexible"),
        ("default", "default"),
    ):
        if key in field:
            out[name] = field[key]
    if "tag" in field and field["taggedVersions"] != out["versions"]:
        raise ValueError(f"{field['name']}: tagged in {field['taggedVersions']} only")
    fields = field.get("fields") or structures.get(kind.removeprefix("[]"))
    if fields:
        out["fields"] = [_field(each, structures) for each in fields]
    return out


def main() -> int:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    text = generate(client_jar())
    if arguments.check:
        same = _TARGET.read_text() == text
        print(f"{_TARGET.name}: {'same' if same else 'differs'}")
        return 0 if same else 1
    _TARGET.write_text(text)
    print(f"{_TARGET}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
