"""The command's interface: every verb with its arguments, options and help.

Only click is imported here, so help and completion are fast. `verb` names the function that does
the work; its module is imported when the verb runs.
"""

import click

from streamlog.cli.exchange_commands import EXCHANGE_COMMANDS
from streamlog.cli.page_commands import PAGE_COMMANDS
from streamlog.cli.reader_commands import READER_COMMANDS
from streamlog.cli.replica_commands import REPLICA_COMMANDS
from streamlog.cli.verb import (
    FORMATS,
    JSON_SHAPES,
    VERB,
    Settings,
    complete_topics,
    decode_option,
    load,
    registry_option,
    schema_options,
    verb,
)

__all__ = ["streamlog"]

partitions_option = click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; repeatable.",
)
encoding_option = click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="Text encoding of keys, values and header values.",
)
decompression_option = click.option(
    "--max-decompressed-bytes",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    help="Maximum decompressed size of one batch. Default: the topic's setting, at least 64 MiB.",
)


def print_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the versions and exit if `--version` is given."""
    if wanted and not context.resilient_parsing:
        load("doctor:print_versions")()
        context.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 a finding, 2 incorrect usage or bad input, 130 interrupted.",
)
@click.option(
    "--path",
    metavar="ROOT",
    envvar="STREAMLOG_PATH",
    help="Log root; to read a replica set, one of its roots or several: A,B,C.",
)
@click.option("--format", type=click.Choice(FORMATS), help="Output format.")
@click.option("--quiet", is_flag=True, help="Suppress progress and remarks.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Print the versions of streamlog, Python and the main dependencies.",
)
@click.pass_context
def streamlog(context: click.Context, *, path: str | None, format: str | None, quiet: bool) -> None:
    """Kafka's log without the broker: create topics, write, read and inspect them.

    \b
    Example:
      export STREAMLOG_PATH=/tmp/log
      streamlog topics create orders --partitions 4
      echo 'eu:first order' | streamlog produce orders --key-separator :
      streamlog cat orders
    """
    context.meta[VERB] = context.command_path
    context.obj = Settings(path=path, format=format, quiet=quiet)


# ---- topics -------------------------------------------------------------------------------------
@streamlog.group()
@verb()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command("create", short_help="Create a topic.", epilog=JSON_SHAPES)
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="Number of partitions. Default: num.partitions of the root.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting, with Kafka's key; repeatable.",
)
@click.option(
    "--replication-factor",
    type=int,
    metavar="N",
    help="Number of replicas, each in another log root. Default: default.replication.factor of the"
    " root.",
)
@click.option(
    "--replica-assignment",
    metavar="NODE:NODE,…",
    help="Nodes of the replicas, partition by partition, the preferred leader first; replaces"
    " --partitions and --replication-factor.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic unchanged.")
@click.option(
    "--adopt",
    is_flag=True,
    help="Turn a non-empty directory into a log root; logs in it become topics.",
)
@verb("topics:create")
def topics_create() -> None:
    """Create a topic, and the log root if it does not exist.

    A missing or empty directory becomes a log root. With --adopt any other directory does too,
    except those of the operating system. Only subdirectories that contain a log become topics;
    everything else is left alone.

    Replicas need log roots of their own: see `streamlog replicas add --help`.

    \b
    Examples:
      streamlog --path /tmp/log topics create orders --partitions 4
      streamlog topics create payments --partitions 2 --replication-factor 3
      streamlog topics create payments --replica-assignment 1:2:3,2:3:1
      streamlog topics create state --config cleanup.policy=compact --if-not-exists
    """


@topics.command("list", short_help="List the topics.", epilog=JSON_SHAPES)
@verb("topics:list_")
def topics_list() -> None:
    """List the topics of a log root or of a broker's log.dir.

    \b
    Example:
      streamlog --path /tmp/log topics list
    """


@topics.command("describe", short_help="Show partitions and settings.", epilog=JSON_SHAPES)
@click.argument("name", required=False, shell_complete=complete_topics)
@click.option(
    "--under-replicated-partitions",
    is_flag=True,
    help="Only partitions with a replica not in sync.",
)
@click.option(
    "--unavailable-partitions", is_flag=True, help="Only partitions without a leader online."
)
@click.option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with as many replicas in sync as min.insync.replicas.",
)
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="Only partitions with fewer replicas in sync than min.insync.replicas.",
)
@verb("topics:describe")
def topics_describe() -> None:
    """Show partitions with their offsets and replicas, and settings with their sources.

    Without a name, describes every topic. Tables omit settings at their defaults. The filters are
    those of kafka-topics; they select replicated partitions.

    \b
    Examples:
      streamlog --path /tmp/log topics describe orders
      streamlog topics describe --under-replicated-partitions
      streamlog topics describe --format ndjson | jq .configs
    """


@topics.command("alter", short_help="Change settings, add partitions.", epilog=JSON_SHAPES)
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a topic setting, with Kafka's key; repeatable.",
)
@click.option(
    "--delete-config",
    "delete_configs",
    multiple=True,
    metavar="KEY",
    help="Remove a topic setting, so that the root's or Kafka's value applies; repeatable.",
)
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="New number of partitions; must exceed the current number.",
)
@verb("topics:alter")
def topics_alter() -> None:
    """Change a topic's settings or add partitions.

    Open handles pick up the changes at once. Adding partitions can move a key to another
    partition.

    \b
    Examples:
      streamlog topics alter orders --config retention.ms=86400000 --delete-config segment.ms
      streamlog topics alter orders --partitions 8
    """


@topics.command("delete", short_help="Delete a topic with all its records.")
@click.argument("name", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@verb("topics:delete")
def topics_delete() -> None:
    """Delete a topic with all its records. Asks for confirmation on a terminal.

    Only log files are removed. Other files in the topic's directories are kept and listed.

    \b
    Examples:
      streamlog --path /tmp/log topics delete orders
      streamlog --path /tmp/log topics delete orders --yes
    """


for _command in (*REPLICA_COMMANDS, *READER_COMMANDS, *PAGE_COMMANDS, *EXCHANGE_COMMANDS):
    streamlog.add_command(_command)


# ---- records ------------------------------------------------------------------------------------
@streamlog.command(short_help="Append stdin or a file to a topic.", epilog=JSON_SHAPES)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records to this partition, whatever their keys or partition fields.",
)
@click.option(
    "--ignore-partition",
    is_flag=True,
    help="Partition by key and ignore the partition field of ndjson, for example to copy to a"
    " topic with fewer partitions.",
)
@click.option(
    "--atomic",
    is_flag=True,
    help="Append all records or none, at the end of the input. A bad line appends nothing.",
)
@click.option(
    "-K",
    "--key-separator",
    metavar="S",
    help=r"Separator between key and value in a line (\t: a tab). Default: lines are values.",
)
@click.option(
    "-k", "--key", metavar="KEY", help="Key of all records (lines without --key-separator)."
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of all records; repeatable (lines only).",
)
@click.option(
    "-Z",
    "--null",
    "has_nulls",
    is_flag=True,
    help="Write empty keys and values as null (lines only).",
)
@click.option(
    "--timestamp",
    metavar="WHEN",
    help="Timestamp of all records: ms since 1970, 2026-11-01T10:00 (UTC unless it has an offset)"
    " or -1h. Default: now (lines only).",
)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(("lines", "ndjson")),
    default="lines",
    show_default=True,
    help="Input format; ndjson as printed by `cat --format ndjson`.",
)
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="Encoding of keys and values in the input.",
)
@click.option(
    "-z",
    "--compression.type",
    "compression_type",
    default="none",
    show_default=True,
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    help="Compression codec.",
)
@click.option(
    "--acks",
    type=click.Choice(("0", "1", "all", "-1")),
    default="all",
    show_default=True,
    help="How many replicas must hold a record; records are synced before the report.",
)
@verb("produce:produce", is_formatted=False)
def produce() -> None:
    """Append stdin or a file to a topic. Prints one row per partition after the sync.

    A record goes to the partition it names; otherwise its key decides, as in Kafka's Java client.
    If a line is bad or a partition does not exist, the records before it are appended and
    reported, and the exit code is 2. With --atomic nothing is appended in that case.

    \b
    Examples:
      echo hello | streamlog --path /tmp/log produce greetings
      printf 'eu:1\\nus:2\\n' | streamlog produce orders -K :
      streamlog produce orders lines.txt --key eu --header source=file
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
      streamlog cat orders --format ndjson | streamlog produce smaller --format ndjson \\
        --ignore-partition
    """


@streamlog.command(short_help="Print records.", epilog=JSON_SHAPES)
@click.argument("source", metavar="TOPIC|DIR", shell_complete=complete_topics)
@partitions_option
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="WHERE",
    help="Start: beginning, end, N, -N (the last N records of each partition) or a time: s@MS,"
    " 2026-11-01T10:00 (UTC unless it has an offset), -90s, -30m, -1h, -7d. End: e@TIME. Both:"
    " A..B, exclusive of B.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=0), metavar="N", help="Print at most N records."
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Keep printing appended records, including those of new partitions, until Ctrl-C.",
)
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    type=click.Choice(("read_committed", "read_uncommitted")),
    help="Whether to skip aborted records and stop before open transactions.",
)
@click.option(
    "--output-format",
    metavar="FORMAT",
    help=r"Format string as for kcat -f: %t %p %o %T %k %K %s %S %R %h and \n \t \xHH.",
)
@encoding_option
@decompression_option
@decode_option
@registry_option
@schema_options("Decode values into this schema instead of the one that wrote each of them.")
@verb("cat:cat")
def cat() -> None:
    """Print records, partition by partition, from the beginning to the current end.

    The argument is a topic of the log root, or a path (anything with a slash): a log root, a
    partition directory or one .log file, written by streamlog or by Kafka. Nothing there is
    changed. Damage is reported after the records before it, with exit code 1.

    \b
    Examples:
      streamlog --path /tmp/log cat orders -o -10
      streamlog cat orders -o -1h --output-format '%p:%o %k=%s\\n'
      streamlog cat orders -p 0 -o 100..200
      streamlog cat orders -o 2026-11-01T10:00..2026-11-01T10:05
      streamlog cat /var/lib/kafka/orders-0 --format ndjson | jq .value
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
      streamlog cat orders -s value=avro -r http://localhost:8081
      streamlog cat orders -s value=protobuf -r schemas/ --output-format '%o %s\\n'
    """


# ---- offsets ------------------------------------------------------------------------------------
@streamlog.command(short_help="Print one offset per partition.", epilog=JSON_SHAPES)
@click.argument("source", metavar="[TOPIC|DIR]", required=False, shell_complete=complete_topics)
@click.option(
    "--time",
    "moment",
    metavar="WHEN",
    default="latest",
    show_default=True,
    help="earliest, latest (the high watermark), max-timestamp, or a time for the first record at"
    " or after it: ms since 1970, 2026-11-01T10:00 (UTC unless it has an offset) or -1h.",
)
@partitions_option
@verb("offsets:offsets")
def offsets() -> None:
    """Print one offset per partition, like kafka-get-offsets.

    Without an argument, covers every topic of the log root.

    \b
    Examples:
      streamlog --path /tmp/log offsets orders
      streamlog offsets orders --time earliest
      streamlog offsets /var/lib/kafka/orders-0 --time 1700000000000
    """


@streamlog.command(
    "delete-records", short_help="Delete records below an offset.", epilog=JSON_SHAPES
)
@click.argument("wanted", nargs=-1, metavar="[TOPIC:PARTITION:OFFSET]…")
@click.option(
    "--offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="JSON file as for kafka-delete-records: a list of topic, partition and offset.",
)
@click.option(
    "--force", is_flag=True, help="Also delete records that a recorded reader has not finished."
)
@verb("offsets:delete_records")
def delete_records() -> None:
    """Delete the records below an offset (-1: all records). Prints the new log start offsets.

    The next maintenance run frees the disk space, in whole segments.

    \b
    Examples:
      streamlog delete-records orders:0:1200 orders:1:-1
      streamlog delete-records --offset-json-file offsets.json
    """


# ---- files --------------------------------------------------------------------------------------
@streamlog.command(short_help="Print the contents of log files.", epilog=JSON_SHAPES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--print-data-log", is_flag=True, help="Print the records as well.")
@encoding_option
@click.option("--deep-iteration", is_flag=True, help="Decode the records, not only the batches.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing entries.")
@click.option("--index-sanity-check", is_flag=True, help="Only check that an index is plausible.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read at most N bytes of a log file.",
)
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state."
)
@decompression_option
@verb("dump:dump")
def dump() -> None:
    """Print the contents of files: batches, index entries, producers, epochs, checkpoints.

    Accepts any file of a partition directory or a log root, written by streamlog or by Kafka:
    .log .index .timeindex .txnindex .snapshot, leader-epoch-checkpoint, the *-offset-checkpoint
    files, partition.metadata and meta.properties. The table format looks like the output of
    kafka-dump-log; ndjson is lossless. Indexes are compared with their log. Errors go to stderr
    after the readable data, with exit code 1.

    \b
    Examples:
      streamlog dump /tmp/log/orders-0/00000000000000000000.log --print-data-log
      streamlog dump /var/lib/kafka/orders-0/*.index --format ndjson
      streamlog dump /var/lib/kafka/__consumer_offsets-0/*.log --offsets-decoder
    """


@streamlog.command(short_help="Check logs for damage.", epilog=JSON_SHAPES)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--deep", is_flag=True, help="Decode every record as well.")
@click.option(
    "--replicas", is_flag=True, help="Compare the replicas of the replica set of PATH as well."
)
@decompression_option
@verb("verify:verify")
def verify() -> None:
    """Check log roots, partition directories or single files for damage. Changes nothing.

    Without PATH, checks the log root of --path or STREAMLOG_PATH.

    Reads every batch and compares its checksum; compares indexes, producer snapshots, epochs and
    checkpoints with the log. In a root created by streamlog, also checks settings, pending
    commits, ledgers and readers. If writers are active, a suspected error is checked again and
    reported only if it persists.

    Prints the findings and exits with 1 if there are any; 0 means that the log is sound. Notes
    that are not damage (files waiting for removal, work in progress) go to stderr.

    With --replicas, also compares the replicas of each partition, below the high watermark, and
    reports partitions that are under-replicated or offline. PATH is one of the log roots.

    \b
    Examples:
      streamlog verify /var/lib/kafka
      streamlog verify /disk-1/log --replicas
      streamlog verify /tmp/log/orders-0 --deep
      streamlog verify /tmp/log/orders-0/00000000000000000000.index --format json
    """


@streamlog.command(short_help="Truncate torn tails, rebuild indexes.", epilog=JSON_SHAPES)
@click.argument("directory", metavar="PATH", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Print the steps and change nothing.")
@click.option(
    "--skip-damage",
    is_flag=True,
    help="Drop damaged records; the original files are kept as *.corrupt-N.",
)
@click.option(
    "--from-replica",
    is_flag=True,
    help="Copy damaged replicas again from the others; the directory is kept.",
)
@verb("verify:repair")
def repair() -> None:
    """Truncate torn tails and rebuild indexes, as opening for writing does. Prints each step.

    PATH is a log root or a partition directory that no process has open for writing. In a root,
    the files below .streamlog (settings, commits, readers) come first. Truncated bytes are kept
    next to the log as *.torn-N.

    Damage to synced records, or to records followed by sound ones, is not repaired: that partition
    stays unchanged, and the exit code is 1. With --skip-damage the partition continues without
    the damaged records, and the sound records after them become readable. Unreadable files of
    .streamlog move to .streamlog/damaged, and each step reports the resulting loss.

    With --from-replica, replicated partitions that are damaged, or differ from the leader's, are
    moved to .streamlog/damaged and copied from a replica in sync, which then leads. Writers may
    continue. Nothing is changed unless such a replica is sound: all its records are checked first.

    \b
    Examples:
      streamlog repair /tmp/log --dry-run
      streamlog repair /tmp/log/orders-0
      streamlog repair /tmp/log/orders-0 --skip-damage
      streamlog repair /disk1/log/orders-0 --from-replica
    """


# ---- the log root -------------------------------------------------------------------------------
@streamlog.command(short_help="Run retention and compaction.", epilog=JSON_SHAPES)
@click.option("--once", is_flag=True, help="Run once and exit (default).")
@click.option("--every", metavar="DURATION", help="Run every 30s, 5m, 1h … until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Print what is due and change nothing.")
@verb("maintain:maintain")
def maintain() -> None:
    """Run retention and compaction according to the topic settings. Prints each action.

    In a replica set, brings the replicas up to date first, as `streamlog replicate` does. Retention
    and compaction run in the roots that --path names only, separated by commas: name all of them.

    In an object store, also builds segments out of committed batches and deletes unneeded objects.

    Records that a recorded reader has not finished are kept; see `streamlog readers`.

    \b
    Examples:
      streamlog --path /tmp/log maintain --dry-run
      streamlog --path s3://bucket/log maintain --every 5m
      streamlog --path /tmp/log maintain --every 5m
      streamlog --path /disk1/log,/disk2/log,/disk3/log maintain --every 5m
    """


@streamlog.command(short_help="Serve Kafka clients.")
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0 takes a free one.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address that clients are given. Default: the one to listen on.",
)
@click.option(
    "--read-only",
    metavar="DIR",
    help="Serve this directory without writing to it: a broker's log.dir, or a copy of one.",
)
@click.option("--tls-cert", metavar="FILE", help="PEM file with the certificate chain: use TLS.")
@click.option("--tls-key", metavar="FILE", help="PEM file with the private key.")
@click.option(
    "--sasl-users",
    metavar="FILE",
    help="File with a line USER:PASSWORD for each user that may connect.",
)
@verb("serve:serve", is_formatted=False)
def serve() -> None:
    """Serve the log root to Kafka clients and tools, until Ctrl-C or SIGTERM.

    Programs that use the files directly may go on reading and writing beside it. Retention and
    compaction run in the server. A stop lets requests in progress finish and syncs everything.

    \b
    Examples:
      streamlog --path /tmp/log serve
      kcat -b localhost:9092 -L
      streamlog serve --read-only /var/lib/kafka/data --listen 127.0.0.1:9192
    """


@streamlog.command(
    short_help="Copy topics to another root.", epilog=f"{JSON_SHAPES} Rules: docs/copy.md."
)
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only it; repeatable.")
@partitions_option
@click.option("--to-time", "moment", metavar="TIME", help="Only records up to a time.")
@click.option("-X", "pairs", multiple=True, metavar="KEY=VALUE", help="Kafka client setting.")
@click.option("--command-config", metavar="FILE", help="Kafka client settings; secrets go here.")
@click.option("--new-offsets", is_flag=True, help="To Kafka: renumber the records from 0.")
@verb("copy:copy")
def copy() -> None:
    """Copy topics from one log root to another: directories and object stores, both ways.

    Keeps offsets, timestamps, headers, leader epochs, topic ids and settings. Run the same command
    again to go on after an interruption, or to copy what is new. SOURCE may be a broker's log.dir.
    One end may be a running Kafka cluster, kafka://HOST:PORT: of it, committed records are copied.

    \b
    Examples:
      streamlog copy /data/log s3://bucket/archive
      streamlog copy /data/log s3://bucket/archive --topic orders --topic clicks
      streamlog copy s3://bucket/archive /data/restored --to-time 2026-11-01T10:00
      streamlog copy /mnt/disk-of-a-broker/kafka-logs s3://bucket/archive
      streamlog copy kafka://localhost:9092 /data/log --topic orders -X compression.type=zstd
      streamlog copy /data/log kafka://localhost:9092 --topic orders --command-config client.conf
    """


@streamlog.command(epilog=f"{JSON_SHAPES} Rules: streamlog/handover/HANDOVER.md.")
@click.option("--to-kafka", is_flag=True, help="Turn the root into the log.dir of a KRaft broker.")
@click.option("--from-kafka", is_flag=True, help="Take the root back from a stopped broker.")
@click.option("--dry-run", is_flag=True, help="Print the steps and change nothing.")
@verb("handover:handover")
def handover() -> None:
    """Hand the log root over to a Kafka broker, or take it back.

    The broker receives every topic with its id, settings, records and leader epochs. It must be
    the only broker of its cluster, and nothing else may write to the root until it is taken back.
    If a precondition fails, nothing is changed. Run the same command again to finish an
    interrupted handover.

    \b
    Examples:
      streamlog --path /data/log handover --to-kafka --dry-run
      streamlog --path /data/log handover --to-kafka
      streamlog --path /data/log handover --from-kafka
    """


@streamlog.command(short_help="Kill writers of a new log root, and count its rows.")
@click.option("--spark", is_flag=True, help="Stream the rows through Spark as well, and kill it.")
@click.option(
    "--rows",
    type=click.IntRange(1_000, 100_000_000),
    default=200_000,
    show_default=True,
    help="Number of rows.",
)
@click.option("--seed", type=int, help="Seed of the moments at which processes are killed.")
@verb("demo:demo")
def demo() -> None:
    """Show what the log promises: kill the processes that write it, and count every row.

    Makes a log root in a temporary directory, or at --path, and leaves it there to be looked at.
    Exits with 1 if a row is lost or duplicated.

    \b
    Examples:
      streamlog demo
      streamlog demo --spark
    """


@streamlog.command(short_help="Check the installation and the log root.")
@click.option("--warm-up", is_flag=True, help="Compile all kernels before their first use.")
@verb("doctor:doctor")
def doctor() -> None:
    """Check Python, packages, Spark's Python, Java and the log root. Prints a fix for each fault.

    Exits with 1 if something will not work.

    \b
    Examples:
      streamlog doctor
      streamlog doctor --warm-up
      streamlog --path /tmp/log doctor --format json
      streamlog --path /disk1/log,/disk2/log doctor
    """
