"""A program for faust: counts the words of `lines` into `counts`.

Started by faust's own command, with `FAUST_BROKER` and `FAUST_STATE` in the environment.
"""

import os
from pathlib import Path

import faust

app = faust.App(
    "faust-words",
    broker=f"kafka://{os.environ['FAUST_BROKER']}",
    datadir=Path(os.environ["FAUST_STATE"]),
    topic_partitions=2,
    consumer_auto_offset_reset="earliest",
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    web_enabled=False,
    value_serializer="raw",
    key_serializer="raw",
)
lines = app.topic("lines", key_serializer="raw", value_serializer="raw")
words = app.topic(
    "words", key_serializer="raw", value_serializer="raw", partitions=2, internal=True
)
results = app.topic("counts", key_serializer="raw", value_serializer="raw")
table = app.Table("totals", default=int, key_type=str, value_type=int, partitions=2)


@app.agent(lines)
async def split(stream: faust.Stream) -> None:
    """Send each word to the partition that counts it."""
    async for line in stream:
        for word in line.split(b" "):
            await words.send(key=word, value=word)


@app.agent(words)
async def count(stream: faust.Stream) -> None:
    """Count, and write each new count."""
    async for word in stream:
        table[word.decode()] += 1
        await results.send(key=word, value=str(table[word.decode()]).encode())
