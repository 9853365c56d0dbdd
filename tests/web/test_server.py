"""The live pages, asked over a socket: what they show, refuse, and change."""

import io
import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamlog.decoding.as_json import FieldDecoder
from streamlog.decoding.decoder import Format
from streamlog.records.record import Header, Record
from streamlog.root.manager import LogManager
from streamlog.web.record_search import SearchLimits
from streamlog.web.server import LogPages
from tests.support.cli import ok, start, streamlog
from tests.support.log_pages import Browser, serving
from tests.support.object_root import root_at, url  # noqa: F401 - a fixture
from tests.support.shown_root import HOSTILE, HOURS, PER_HOUR, make_shown_root
from tests.support.untouched import facts
from tests.web.test_report_page import Outline

PAGES = (
    "/",
    "/topics/orders",
    "/topics/orders/records",
    "/topics/orders/records?order=oldest&partition=0&from=3&until=9&key=customer-1",
    "/topics/orders/records/0/5",
    "/topics/orders/records/0/99999",
    "/topics/orders/tail",
    "/topics/hostile/records",
    "/topics/hostile/records/0/0",
    "/topics/hostile/records/0/1",
    "/topics/hostile/records/0/2",
    "/topics/state",
    "/topics/nothing",
    "/topics/orders/records?from=yesterday",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_shown_root(tmp_path_factory.mktemp("live") / "root")


@pytest.fixture(scope="module")
def browser(root: str) -> Iterator[Browser]:
    with serving(LogPages(root)) as browser:
        yield browser


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[tuple[str, Browser]]:
    root = make_shown_root(tmp_path / "root")
    with serving(LogPages(root, allows_writes=True)) as browser:
        yield root, browser


# ---- what pages show ----------------------------------------------------------------------------
def test_every_page_is_whole_and_changes_nothing(root: str, browser: Browser) -> None:
    before = facts(Path(root))
    for path in PAGES:
        answer = browser.get(path)
        is_missing = "nothing" in path or "99999" in path
        assert answer.status == (404 if is_missing else 400 if "yesterday" in path else 200), path
        Outline(answer.text)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert facts(Path(root)) == before


def test_no_page_has_scripts_or_styles_of_its_own(browser: Browser) -> None:
    for path in PAGES:
        for tag, attributes in Outline(browser.get(path).text).tags:
            assert tag != "style"
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)
            if tag == "script":
                assert attributes["src"] == "/assets/app.js"


def test_each_field_has_a_label(browser: Browser) -> None:
    outline = Outline(browser.get("/topics/orders/records").text)
    labelled = {attributes.get("for") for tag, attributes in outline.tags if tag == "label"}
    fields = [a["id"] for tag, a in outline.tags if tag in ("input", "select", "textarea")]
    assert fields
    assert set(fields) <= labelled


def test_hostile_records_are_shown_as_text(browser: Browser) -> None:
    for path in ("/topics/hostile/records", "/topics/hostile/records/0/0"):
        answer = browser.get(path)
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert" in answer.text
    outline = Outline(browser.get("/topics/hostile/records/0/0").text)
    assert outline.text.count(HOSTILE) >= 3  # key, value, header
    assert "ff 00 fe" in browser.get("/topics/hostile/records/0/1").text


def test_a_record_is_decoded_and_says_its_command(root: str, browser: Browser) -> None:
    outline = Outline(browser.get("/topics/orders/records/0/5").text)
    assert '"name": "ann 5"' in outline.text
    (command,) = re.findall(r"streamlog (--path \S+ cat .*?) *Copy", outline.text)
    (shown,) = ok(*command.split(), "--format", "ndjson").rows
    assert (shown["offset"], json.loads(shown["value"])["id"]) == (5, 5)


def test_keys_and_values_are_shown_decoded(tmp_path: Path) -> None:
    order = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    schemas = tmp_path / "sche'mas <b>"
    schemas.mkdir()
    for name in ("7", "00000000-0000-0000-0000-000000000000"):
        (schemas / f"{name}.avsc").write_text(json.dumps(order))
    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("orders", 1)
        values = (b"\0\0\0\0\7\x54", b"\0\0\0\0\x08\x54", None)
        records = [Record(key=b"<ann>", value=each) for each in values]
        header = Header("__value_schema_id", b"\1" + bytes(16))
        records.append(Record(value=b"\x56", headers=(header,)))
        manager.log("orders", 0).append(records)
    avro = decoder(Format.AVRO, str(schemas))
    with serving(LogPages(str(tmp_path / "root"), fields={"value": avro})) as browser:
        rows = browser.get("/topics/orders/records?order=oldest").text
        tail = browser.get("/topics/orders/tail/rows?cursor=0:0").text
        decoded, unknown, null, by_header = (
            Outline(browser.get(f"/topics/orders/records/0/{offset}").text).text
            for offset in range(4)
        )
    for page in (rows, tail):
        assert "{&#34;id&#34;: 42}" in page
        assert "{&#34;id&#34;: 43}" in page
    assert '"id": 43' in by_header
    assert "&lt;ann&gt;" in rows
    assert "decoded from avro" in decoded
    assert '"id": 42' in decoded
    assert "Not decoded: unknown schema id 8" in unknown
    assert "null" in null
    assert "decoded" not in null.lower()
    (command,) = re.findall(r"streamlog (--path .*?) *Copy", decoded)
    (shown,) = ok(*shlex.split(command), "--format", "ndjson").rows
    assert shown["value"] == {"id": 42}


@pytest.mark.parametrize(
    ("registry", "shown"),
    [
        ("https://ann:secret@registry/x?token=secret#secret", "-r https://registry/x"),
        ("http://[::1]:8081", "-r 'http://[::1]:8081'"),
        (None, ""),
    ],
)
def test_the_command_has_no_credentials(root: str, registry: str | None, shown: str) -> None:
    fields = {name: decoder(Format.JSON, registry) for name in ("key", "value")}
    with serving(LogPages(root, fields=fields)) as browser:
        page = browser.get("/topics/orders/records/0/5").text
    assert "secret" not in page
    assert f"read_uncommitted -s key=json -s value=json {shown}".rstrip() in Outline(page).text


def decoder(kind: Format, registry: str | None) -> FieldDecoder:
    return FieldDecoder(kind=kind, registry=registry, schema=None, message=None, is_framed=True)


def test_the_overview_is_there_as_json(browser: Browser) -> None:
    shown = json.loads(browser.get("/overview.json").body)
    assert [each["name"] for each in shown["topics"]] == ["hostile", "orders", "state"]


def test_a_search_goes_on_page_by_page(browser: Browser) -> None:
    path, seen = "/topics/orders/records?order=oldest&partition=0&rows=7", []
    while path:
        page = browser.get(path).text
        seen += re.findall(r"/topics/orders/records/0/(\d+)\"", page)
        more = re.search(r'href="(\?[^"]*)" rel="next"', page)
        path = f"/topics/orders/records{more[1].replace('&amp;', '&')}" if more else ""
    assert list(map(int, seen)) == list(range(HOURS * PER_HOUR))


def test_a_search_by_json_path_finds_one(browser: Browser) -> None:
    page = browser.get("/topics/orders/records?path=who.name&equals=ann%2017").text
    assert re.findall(r"/topics/orders/records/(\d/\d+)\"", page) == ["0/17"]


def test_limits_are_told(root: str) -> None:
    with serving(LogPages(root, limits=SearchLimits(bytes=1))) as browser:
        page = browser.get("/topics/orders/records?text=nowhere&order=oldest").text
    assert "stopped by the limit of bytes" in page
    assert 'rel="next"' in page


# ---- downloads and tail -------------------------------------------------------------------------
def test_a_download_is_what_cat_prints(root: str, browser: Browser) -> None:
    for topic in ("orders", "hostile"):
        answer = browser.get(f"/topics/{topic}/download?format=ndjson")
        assert answer.body == ok("--path", root, "cat", topic, "--format", "ndjson").out
        assert "attachment" in answer.headers["content-disposition"]


def test_a_download_of_a_range_as_parquet(browser: Browser) -> None:
    path = "/topics/orders/download?format=parquet&partition=0&from=3&until=9"
    table = pq.read_table(io.BytesIO(browser.get(path).body))
    assert table["offset"].to_pylist() == [3, 4, 5, 6, 7, 8]
    assert table["headers"].to_pylist()[0] == [{"key": "trace", "value": b"3"}]
    empty = browser.get(f"{path}&text=nowhere").body
    assert pq.read_table(io.BytesIO(empty)).num_rows == 0


def test_tail_gives_each_record_once(writing: tuple[str, Browser]) -> None:
    root, browser = writing
    (cursor,) = re.findall(r'data-cursor="([^"]+)"', browser.get("/topics/orders/tail").text)
    seen = []
    for value in (b"one", b"two\nthree"):
        ok("--path", root, "produce", "orders", "-p", 1, stdin=value)
        answer = browser.get(f"/topics/orders/tail/rows?cursor={cursor}")
        cursor = answer.headers["x-cursor"]
        seen += re.findall(r"records/1/(\d+)\"", answer.text)
        assert browser.get(f"/topics/orders/tail/rows?cursor={cursor}").text.strip() == ""
    assert seen == ["1", "2", "3"]


# ---- who may ask --------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil", "[::"])
def test_other_hosts_get_no_answer(browser: Browser, host: str) -> None:
    answer = browser.get("/topics/orders/records", Host=host)
    assert answer.status == 421
    assert b"orders" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8095"])
def test_the_loopback_has_several_names(browser: Browser, host: str) -> None:
    assert browser.get("/", Host=host).status == 200


def test_without_leave_there_is_no_way_to_change_anything(browser: Browser) -> None:
    for path in ("/topics/orders/produce", "/topics/orders/delete-records"):
        assert browser.post(path, {"value": "x"}).status == 404
    for path in PAGES[:3]:
        assert browser.post(path, {}).status == 405
    assert browser.get("/topics/orders/write").status == 404
    assert "Change" not in browser.get("/topics/orders").text


def token_of(browser: Browser) -> str:
    page = browser.get("/topics/orders/write").text
    return re.findall(r'name="token" value="([^"]+)"', page)[0]


def test_a_record_is_produced(writing: tuple[str, Browser]) -> None:
    root, browser = writing
    form = {
        "token": token_of(browser),
        "partition": "1",
        "key": "kéy",
        "value": "hello",
        "headers": "a: 1\nb: two: x",
    }
    answer = browser.post("/topics/orders/produce", form)
    assert answer.status == 303
    assert "partition+1+at+offset+1" in answer.headers["location"]
    last = ok("--path", root, "cat", "orders", "-p", 1, "-o", -1, "--format", "ndjson").rows[0]
    assert (last["key"], last["value"]) == ("kéy", "hello")
    assert last["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "two: x"}]
    nulls = {"token": form["token"], "no_key": "on", "no_value": "on", "partition": "0"}
    assert browser.post("/topics/orders/produce", nulls).status == 303
    last = ok("--path", root, "cat", "orders", "-p", 0, "-o", -1, "--format", "ndjson").rows[0]
    assert (last["key"], last["value"]) == (None, None)


def test_records_are_deleted_after_a_confirmation(writing: tuple[str, Browser]) -> None:
    root, browser = writing
    form = {"token": token_of(browser), "partition": "0", "offset": "4", "confirm": "order"}
    assert browser.post("/topics/orders/delete-records", form).status == 400
    form["confirm"] = "orders"
    assert browser.post("/topics/orders/delete-records", form).status == 303
    with LogManager.open(root) as manager:
        assert manager.describe("orders").partitions[0].log_start_offset == 4
    form["offset"] = "99999999999"
    assert browser.post("/topics/orders/delete-records", form).status == 400


def test_forms_of_others_change_nothing(writing: tuple[str, Browser]) -> None:
    root, browser = writing
    before = ok("--path", root, "offsets", "orders").rows
    token = token_of(browser)
    for form, headers in (
        ({"value": "x"}, {}),
        ({"value": "x", "token": "guessed"}, {}),
        ({"value": "x", "token": token}, {"Origin": "http://evil.example"}),
        ({"value": "x", "token": token}, {"Origin": "null"}),
        ({"value": "x", "token": token}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert browser.post("/topics/orders/produce", form, **headers).status == 403
    large = {"token": token, "value": "x" * (2 << 20)}
    assert browser.post("/topics/orders/produce", large).status == 400
    assert ok("--path", root, "offsets", "orders").rows == before


def test_a_root_in_an_object_store_is_shown_and_changed(url: str) -> None:  # noqa: F811
    root_at(url).create_topic("pages", partitions=2)
    with serving(LogPages(url, allows_writes=True)) as browser:
        page = browser.get("/topics/pages/write").text
        (token, *_) = re.findall(r'name="token" value="([^"]+)"', page)
        form = {"token": token, "partition": "1", "key": "k", "value": "v"}
        assert browser.post("/topics/pages/produce", form).status == 303
        assert "records/1/0" in browser.get("/topics/pages/records").text
        form = {"token": token, "partition": "1", "offset": "1", "confirm": "pages"}
        assert browser.post("/topics/pages/delete-records", form).status == 303
        assert "records/1/0" not in browser.get("/topics/pages/records").text


# ---- the command --------------------------------------------------------------------------------
@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.0.0.1:80", "8095", "127.0.0.1:99999", "x:1"])
def test_the_command_listens_on_the_loopback_only(root: str, listen: str) -> None:
    ran = streamlog("ui", root, "--listen", listen)
    assert ran.code == 2
    assert "ssh -L" in ran.error


def test_the_command_needs_a_root() -> None:
    assert streamlog("ui", "/nowhere/at/all").code == 2


def test_the_command_serves_until_it_is_interrupted(root: str) -> None:
    process = start("ui", root, "--listen", "127.0.0.1:0")
    assert process.stderr is not None
    told = process.stderr.readline().decode()
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/ \(read-only\)", told)
    assert b"orders" in Browser(int(port)).get("/").body
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, b"", b"")
