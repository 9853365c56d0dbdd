"""The server of the pages: a log root, live, for one machine.

Every page is made for its request. Nothing is written unless changes are allowed. At most
`_SEARCHES` searches run at once, each within its limits; the overview is made again after a time
in proportion to what it cost.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.overview.look import overview_of
from streamlog.overview.model import RootOverview, TopicOverview, as_json
from streamlog.root.topics import unknown_topic_error
from streamlog.topic import TopicPartition
from streamlog.web.changes import delete_records, parse_headers, produce_record
from streamlog.web.decoded_fields import DecodedFields
from streamlog.web.downloads import download
from streamlog.web.guard import ChangeToken, HostGuard
from streamlog.web.pages import render
from streamlog.web.record_filter import RecordFilter
from streamlog.web.record_search import (
    FoundRecords,
    RecordQuery,
    SearchLimits,
    one_record,
    parse_border,
    parse_cursor,
    ranges_of,
    search,
)

if TYPE_CHECKING:
    from streamlog.decoding.as_json import FieldDecoder

__all__ = ["LogPages"]

_MINUTE_MS: Final = 60_000
_MINUTES: Final = 60
_SEARCHES: Final = 2
_WAIT_S: Final = 10.0
_MAX_ROWS: Final = 500
_TAIL_ROWS: Final = 200
_MAX_BODY: Final = 1 << 20
_LEAST_AGE_MS: Final = 1000.0
_TYPES: Final = {"style.css": "text/css", "app.js": "text/javascript"}
_FILTERS: Final = ("key", "text", "path", "equals")
_KINDS: Final = {-1: "no timestamp", 0: "create time", 1: "log append time"}


class _Bounds(NamedTuple):
    """A partition and what can be read of it."""

    partition: int
    log_start_offset: int
    log_end_offset: int


class _Topic(NamedTuple):
    """A topic, as the pages about its records know it."""

    name: str
    partitions: list[_Bounds]


class LogPages:
    """The pages of one root.

    Args:
        path: The root, as `overview_of` takes it.
        allows_writes: Whether records may be produced and deleted.
        host: The address that the server listens on.
        limits: How much one search may do.
        clock: The clock; the machine's own by default.
        fields: Decoders of keys and values, by `key` and `value`; none by default.
    """

    def __init__(
        self,
        path: str,
        *,
        allows_writes: bool = False,
        host: str = "127.0.0.1",
        limits: SearchLimits | None = None,
        clock: Clock | None = None,
        fields: "Mapping[str, FieldDecoder] | None" = None,
    ) -> None:
        self._fields = DecodedFields(fields or {})
        self._path, self._allows_writes, self._host = path, allows_writes, host
        self._limits, self._clock = limits or SearchLimits(), clock or SystemClock()
        self._token = ChangeToken()
        self._searches = threading.BoundedSemaphore(_SEARCHES)
        self._guard = threading.Lock()
        self._known: tuple[float, RootOverview] | None = None

    def app(self) -> Starlette:
        """Return the ASGI application."""
        get: Mapping[str, Callable[[Request], Response]] = {
            "/": self.home,
            "/overview.json": self.overview_json,
            "/topics/{topic}": self.topic,
            "/topics/{topic}/records": self.records,
            "/topics/{topic}/records/{partition:int}/{offset:int}": self.record,
            "/topics/{topic}/tail": self.tail,
            "/topics/{topic}/tail/rows": self.tail_rows,
            "/topics/{topic}/download": self.download,
            "/assets/{name}": _asset,
        }
        routes = [Route(path, page) for path, page in get.items()]
        if self._allows_writes:
            routes += [
                Route("/topics/{topic}/write", self.write),
                Route("/topics/{topic}/produce", self.produce, methods=["POST"]),
                Route("/topics/{topic}/delete-records", self.delete, methods=["POST"]),
            ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(HostGuard, host=self._host)],
            exception_handlers={StreamLogError: self._failed},
        )

    def _page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        page = render(
            template,
            is_live=True,
            path=self._path,
            allows_writes=self._allows_writes,
            address=_address,
            **values,
        )
        return HTMLResponse(page.encode("utf-8", "backslashreplace"), status)

    def _failed(self, request: Request, error: Exception) -> Response:
        """Return the page for an error that the package raised."""
        assert isinstance(error, StreamLogError)
        status = 500
        if isinstance(error, UnknownTopicError):
            status = 404
        elif isinstance(error, InvalidRequestError):
            status = 400
        elif isinstance(error, UnavailableError):
            status = 503
        return self._page("error.html", status, error=error.sentence, cure=error.hint)

    # ---- the overview ------------------------------------------------------------------------
    def _overview(self) -> RootOverview:
        with self._guard:
            now = self._clock.monotonic_ms()
            if self._known is None or now >= self._known[0]:
                root = overview_of(
                    self._path,
                    clock=self._clock,
                    step_ms=_MINUTE_MS,
                    steps=_MINUTES,
                    ends_now=True,
                )
                took = self._clock.monotonic_ms() - now
                self._known = now + took + max(_LEAST_AGE_MS, 5 * took), root
            return self._known[1]

    def _topic(self, request: Request) -> tuple[RootOverview, TopicOverview]:
        root, name = self._overview(), request.path_params["topic"]
        for topic in root.topics:
            if topic.name == name:
                return root, topic
        names = [each.name for each in root.topics]
        raise unknown_topic_error(root.path, name, names, is_wanted=False)

    def _bounds(self, request: Request) -> _Topic:
        """Return the partitions of a topic; unlike the overview, cheap on the largest root."""
        name = request.path_params["topic"]
        ranges = ranges_of(self._path, RecordQuery(topic=name))
        return _Topic(name, [_Bounds(each.partition, start, end) for each, start, end in ranges])

    def home(self, request: Request) -> Response:
        """Show the whole root."""
        return self._page("home.html", root=self._overview())

    def overview_json(self, request: Request) -> Response:
        """Return what the first page shows, as `report --format json`."""
        return JSONResponse(as_json(self._overview()))

    def topic(self, request: Request) -> Response:
        """Show one topic."""
        root, topic = self._topic(request)
        return self._page("topic.html", root=root, topic=topic, partition_address=_browse)

    # ---- records -----------------------------------------------------------------------------
    def _query(self, request: Request, *, cursor: str | None = None) -> RecordQuery:
        asked, now_ms = request.query_params, self._clock.now_ms()
        partition = asked.get("partition", "").strip()
        if partition and not (partition.isascii() and partition.isdigit() and len(partition) < 10):
            raise InvalidOptionError("not a partition", got=partition, expected="a number")
        key, text, path, equals = (asked.get(name, "") for name in _FILTERS)
        return RecordQuery(
            topic=request.path_params["topic"],
            partition=int(partition) if partition else None,
            start=parse_border(asked.get("from", ""), now_ms),
            end=parse_border(asked.get("until", ""), now_ms),
            is_newest_first=asked.get("order", "newest") != "oldest",
            filter=RecordFilter(key=key, text=text, json_path=path, json_value=equals),
            cursor=parse_cursor(asked.get("cursor", "") if cursor is None else cursor),
            has_headers=self._fields.needs_headers,
        )

    def _search(self, query: RecordQuery, limits: SearchLimits) -> FoundRecords:
        if not self._searches.acquire(timeout=_WAIT_S):
            raise UnavailableError("other searches are running", hint="try again")
        try:
            found = search(self._path, query, limits, clock=self._clock)
        finally:
            self._searches.release()
        self._fields.add_lines(found.rows)
        return found

    def records(self, request: Request) -> Response:
        """Search for records and show them."""
        topic = self._bounds(request)
        query = self._query(request)
        rows = request.query_params.get("rows", "")
        count = int(rows) if rows.isascii() and rows.isdigit() and len(rows) < 6 else 0
        limits = SearchLimits(
            rows=min(max(1, count or self._limits.rows), _MAX_ROWS),
            bytes=self._limits.bytes,
            ms=self._limits.ms,
        )
        found = self._search(query, limits)
        asked = {key: value for key, value in request.query_params.items() if value}
        more = None
        if found.cursor is not None:
            more = f"?{urlencode({**asked, 'cursor': found.cursor})}"
        asked.pop("cursor", None)
        return self._page(
            "records.html",
            topic=topic,
            found=found,
            asked=asked,
            more=more,
            query=query,
            same=f"?{urlencode(asked)}",
            rows=limits.rows,
        )

    def record(self, request: Request) -> Response:
        """Show one record."""
        topic = self._bounds(request)
        offset = request.path_params["offset"]
        partition = TopicPartition(topic.name, request.path_params["partition"])
        found = one_record(self._path, partition, offset)
        if found is not None:
            self._fields.add_shown(found)
        return self._page(
            "record.html",
            200 if found else 404,
            topic=topic,
            record=found,
            partition=partition.partition,
            offset=offset,
            kinds=_KINDS,
            decode_flags=self._fields.flags(),
        )

    def download(self, request: Request) -> Response:
        """Send the records of a range as a file."""
        query = self._query(request, cursor="")
        is_parquet = request.query_params.get("format") == "parquet"
        ranges = ranges_of(self._path, query)
        content = download(self._path, ranges, query.filter, is_parquet=is_parquet)
        name = f"{query.topic}.{'parquet' if is_parquet else 'ndjson'}"
        kind = "application/vnd.apache.parquet" if is_parquet else "application/x-ndjson"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(content, media_type=kind, headers=headers)

    # ---- tail --------------------------------------------------------------------------------
    def tail(self, request: Request) -> Response:
        """Show records as they arrive."""
        topic = self._bounds(request)
        return self._page("tail.html", topic=topic, cursor=_cursor(topic))

    def tail_rows(self, request: Request) -> Response:
        """Return the records after a cursor as rows of a table, and the next cursor."""
        query = self._query(request)
        query = RecordQuery(
            topic=query.topic,
            is_newest_first=False,
            cursor=query.cursor,
            has_headers=query.has_headers,
        )
        ends = {each.partition: end for each, _, end in ranges_of(self._path, query)}
        cursor = {number: query.cursor.get(number, 0) for number in ends}
        limits = SearchLimits(rows=_TAIL_ROWS, bytes=16 << 20, ms=1000)
        found = self._search(replace(query, cursor=cursor), limits)
        after = {**ends, **parse_cursor(found.cursor or "")}
        for row in found.rows:  # appended since the ends were looked at
            after[row["partition"]] = max(after[row["partition"]], row["offset"] + 1)
        rows = render(
            "rows.html", found=found, topic_name=query.topic, path=self._path, address=_address
        )
        pairs = ",".join(f"{number}:{at}" for number, at in sorted(after.items()))
        return HTMLResponse(rows.encode("utf-8", "backslashreplace"), headers={"x-cursor": pairs})

    # ---- changes -----------------------------------------------------------------------------
    def write(self, request: Request) -> Response:
        """Show the forms for changes."""
        topic = self._bounds(request)
        done = request.query_params.get("done")
        return self._page("write.html", topic=topic, token=self._token.value, done=done)

    async def _form(self, request: Request) -> dict[str, str] | None:
        """Return the fields of a form of ours, None if it is another's."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY:
                raise InvalidRequestError(
                    "the form is too large", got=f"more than {_MAX_BODY} bytes"
                )
        text = body.decode("utf-8", "surrogateescape")
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=20)
        form = {name: values[-1] for name, values in fields.items()}
        return form if self._token.allows(request.headers, form.get("token", "")) else None

    async def _change(
        self, request: Request, change: Callable[[str, dict[str, str]], str]
    ) -> Response:
        form = await self._form(request)
        if form is None:
            return self._page(
                "error.html",
                403,
                error="this form was not made by this server",
                cure="open the page again and send the form from there",
            )
        topic = request.path_params["topic"]
        done = await run_in_threadpool(change, topic, form)
        self._known = None
        return RedirectResponse(f"{_address(topic)}/write?{urlencode({'done': done})}", 303)

    async def produce(self, request: Request) -> Response:
        """Append a record."""

        def change(topic: str, form: dict[str, str]) -> str:
            number = form.get("partition", "").strip()
            partition, offset = produce_record(
                self._path,
                topic,
                partition=_number(number, "partition") if number else None,
                key=None if "no_key" in form else form.get("key", "").encode(),
                value=None if "no_value" in form else form.get("value", "").encode(),
                headers=parse_headers(form.get("headers", "")),
            )
            return f"appended to partition {partition} at offset {offset}"

        return await self._change(request, change)

    async def delete(self, request: Request) -> Response:
        """Delete the records below an offset."""

        def change(topic: str, form: dict[str, str]) -> str:
            partition = _number(form.get("partition", ""), "partition")
            offset = _number(form.get("offset", ""), "offset")
            if form.get("confirm") != topic:
                raise InvalidRequestError(
                    "not confirmed",
                    got=repr(form.get("confirm", "")),
                    expected=topic,
                    hint="type the name of the topic to confirm",
                )
            start = delete_records(self._path, topic, partition, offset, force="force" in form)
            return f"partition {partition} now starts at offset {start}"

        return await self._change(request, change)


def _number(text: str, what: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit() and len(text.strip()) < 20):
        raise InvalidRequestError(f"not a number for {what}", got=repr(text))
    return int(text)


def _address(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def _browse(topic: str, partition: int) -> str:
    return f"{_address(topic)}/records?partition={partition}"


def _cursor(topic: _Topic) -> str:
    return ",".join(f"{each.partition}:{each.log_end_offset}" for each in topic.partitions)


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _TYPES.get(name)
    if kind is None:
        return Response("no such file", 404)
    return Response(_file(name), media_type=kind)


@cache
def _file(name: str) -> bytes:
    return files("streamlog.web").joinpath("templates", name).read_bytes()
