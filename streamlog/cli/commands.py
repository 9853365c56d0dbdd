"""The command's interface: its verbs with their arguments, options and help.

Only click is imported here, so that help and completion are quick. `verb` names the function that
does a verb's work; its module is imported when the verb runs.
"""

import click

from streamlog.cli.verb import FORMATS, VERB, Settings, complete_topics, load, verb

__all__ = ["streamlog"]

JSON_SHAPES = "JSON shapes: streamlog/cli/JSON.md."  # below the help of a verb that prints rows

decompressing = click.option(
    "--max-decompressed-bytes",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    help="The most bytes that one compressed batch may unfold to; by default what its topic says,"
    " 64 MiB at least.",
)


def print_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's way
    """Print the versions and exit, if asked to."""
    if wanted and not context.resilient_parsing:
        load("doctor:print_versions")()
        context.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a finding, 2 wrong use or bad input, 130 interrupted.",
)
@click.option("--path", metavar="ROOT", envvar="STREAMLOG_PATH", help="The log root.")
@click.option("--format", type=click.Choice(FORMATS), help="How to print data.")
@click.option("--quiet", is_flag=True, help="No progress, no remarks.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Print the versions of what works together here.",
)
@click.pass_context
def streamlog(context: click.Context, *, path: str | None, format: str | None, quiet: bool) -> None:
    """Kafka's log without the broker: make topics, write them, read them, look inside.

    \b
    Example:
      export STREAMLOG_PATH=/tmp/log
      streamlog topics create orders --partitions 4
      echo 'eu:first order' | streamlog produce orders --key-separator :
      streamlog cat orders
    """
    context.meta[VERB] = context.command_path
    context.obj = Settings(path=path, format=format, quiet=quiet)


@streamlog.group()
@verb()
def topics() -> None:
    """Make, list, describe, alter and delete topics."""


@topics.command("create", epilog=JSON_SHAPES)
@click.argument("name")
@click.option(
    "--partitions", type=int, metavar="N", help="How many; num.partitions of the root unless told."
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic, by Kafka's key; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic of that name as it is.")
@click.option(
    "--adopt",
    is_flag=True,
    help="Make the log root of a directory that is not empty: logs in it become topics.",
)
@verb("topics:create")
def topics_create() -> None:
    """Make a topic, and the log root where it is missing.

    A log root is made of a missing or an empty directory; with --adopt of any other one, too, but
    for those of the operating system. Only directories that hold a log become topics; all else
    there is left alone.

    \b
    Examples:
      streamlog --path /tmp/log topics create orders --partitions 4
      streamlog topics create state --config cleanup.policy=compact --if-not-exists
    """


@topics.command("list", short_help="List the topics.", epilog=JSON_SHAPES)
@verb("topics:list_")
def topics_list() -> None:
    """List the topics of the log root; a broker's log.dir will do as well.

    \b
    Example:
      streamlog --path /tmp/log topics list
    """


@topics.command("describe", short_help="Show partitions and settings.", epilog=JSON_SHAPES)
@click.argument("name", required=False, shell_complete=complete_topics)
@verb("topics:describe")
def topics_describe() -> None:
    """Show partitions with their offsets, and settings with where they come from.

    Without a name: every topic. On a terminal settings at their default are left out.

    \b
    Examples:
      streamlog --path /tmp/log topics describe orders
      streamlog topics describe --format ndjson | jq .configs
    """


@topics.command("alter", short_help="Change settings, add partitions.", epilog=JSON_SHAPES)
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting the topic gets, by Kafka's key; may be repeated.",
)
@click.option(
    "--delete-config",
    "delete_configs",
    multiple=True,
    metavar="KEY",
    help="A setting the topic is to have no more: the root's or Kafka's holds; may be repeated.",
)
@click.option(
    "--partitions", type=int, metavar="N", help="How many it is to have; more than it has."
)
@verb("topics:alter")
def topics_alter() -> None:
    """Change settings of a topic, add partitions; whoever has it open goes by it at once.

    A key that has more partitions to go to than before may go to another one.

    \b
    Examples:
      streamlog topics alter orders --config retention.ms=86400000 --delete-config segment.ms
      streamlog topics alter orders --partitions 8
    """


@topics.command("delete", short_help="Delete a topic with all its records.")
@click.argument("name", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@verb("topics:delete")
def topics_delete() -> None:
    """Delete a topic with all its records; asks first where a person is at the terminal.

    Only files of logs are removed. What else lies in the topic's directories stays there, and is
    named.

    \b
    Examples:
      streamlog --path /tmp/log topics delete orders
      streamlog --path /tmp/log topics delete orders --yes
    """


@streamlog.command(short_help="Append stdin or a file to a topic.", epilog=JSON_SHAPES)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write all records there, whatever they ask for and whatever their keys say.",
)
@click.option(
    "--ignore-partition",
    is_flag=True,
    help="Go by the keys, whatever partition ndjson asks for: for a copy to a topic with fewer.",
)
@click.option(
    "--atomic",
    is_flag=True,
    help="All records or none, once the input ends: nothing is written where a line is bad.",
)
@click.option(
    "-K",
    "--key-separator",
    metavar="S",
    help=r"Lines are KEY S VALUE (\t for a tab); without it lines are values.",
)
@click.option("-k", "--key", metavar="KEY", help="The key of all records; for lines without one.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records; may be repeated. For lines.",
)
@click.option(
    "-Z", "--null", "has_nulls", is_flag=True, help="Empty keys and values are null. For lines."
)
@click.option(
    "--timestamp",
    metavar="WHEN",
    help="The timestamp of all records: ms since 1970, 2026-11-01T10:00 (UTC unless it says"
    " otherwise), or -1h; the present unless told. For lines.",
)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(("lines", "ndjson")),
    default="lines",
    show_default=True,
    help="What the input is; ndjson as `cat --format ndjson` has it.",
)
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="How keys and values are written in the input.",
)
@click.option(
    "-z",
    "--compression.type",
    "compression_type",
    default="none",
    show_default=True,
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    help="The codec.",
)
@click.option(
    "--acks",
    type=click.Choice(("0", "1", "all", "-1")),
    default="all",
    show_default=True,
    help="Kafka's word; here all is durable before it is reported.",
)
@verb("produce:produce", is_formatted=False)
def produce() -> None:
    """Append stdin, or a file, to a topic; prints a row a partition once it is synced.

    A record's partition is the one it asks for, or follows from its key as in Kafka's Java
    client. Where a line is bad, or a partition is not there, the records before it are appended
    and reported, and the exit code is 2; with --atomic nothing is appended then.

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
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="WHERE",
    help="Where to start: beginning, end, N, -N (the last N of each partition), or a time: s@MS,"
    " 2026-11-01T10:00 (UTC unless it says otherwise), -90s, -30m, -1h, -7d. Where to stop: e@ and"
    " a time. Both: A..B, up to B without it.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=0), metavar="N", help="At most N records in all."
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on with what is appended, in partitions added later, too, until Ctrl-C.",
)
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    type=click.Choice(("read_committed", "read_uncommitted")),
    help="Whether to leave out what is aborted or not yet committed.",
)
@click.option(
    "--output-format",
    metavar="FORMAT",
    help=r"As kcat's -f: %t %p %o %T %k %K %s %S %R %h and \n \t \xHH.",
)
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="How keys, values and header values become text.",
)
@decompressing
@verb("cat:cat")
def cat() -> None:
    """Print records, partition by partition, from the beginning to the present end.

    The argument is a topic of the log root, or any path with a slash: a log root, a partition's
    directory, one .log file, whoever wrote it. Nothing there is changed. The first records before
    damage are printed, then the damage is told and the exit code is 1.

    \b
    Examples:
      streamlog --path /tmp/log cat orders -o -10
      streamlog cat orders -o -1h --output-format '%p:%o %k=%s\\n'
      streamlog cat orders -p 0 -o 100..200
      streamlog cat orders -o 2026-11-01T10:00..2026-11-01T10:05
      streamlog cat /var/lib/kafka/orders-0 --format ndjson | jq .value
      streamlog cat orders --format ndjson | streamlog produce copy --format ndjson
    """


@streamlog.command(short_help="Print one offset of each partition.", epilog=JSON_SHAPES)
@click.argument("source", metavar="[TOPIC|DIR]", required=False, shell_complete=complete_topics)
@click.option(
    "--time",
    "moment",
    metavar="WHEN",
    default="latest",
    show_default=True,
    help="earliest, latest (the high watermark), max-timestamp, or a time: the first record of"
    " that time or later. ms since 1970, 2026-11-01T10:00 (UTC unless it says otherwise), -1h.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
@verb("offsets:offsets")
def offsets() -> None:
    """Print one offset of each partition, as kafka-get-offsets does.

    Without an argument: of every topic of the log root.

    \b
    Examples:
      streamlog --path /tmp/log offsets orders
      streamlog offsets orders --time earliest
      streamlog offsets /var/lib/kafka/orders-0 --time 1700000000000
    """


@streamlog.command(
    "delete-records",
    short_help="Delete the records below an offset.",
    epilog=JSON_SHAPES,
)
@click.argument("wanted", nargs=-1, metavar="[TOPIC:PARTITION:OFFSET]…")
@click.option(
    "--offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="What Kafka's kafka-delete-records takes: a list of topic, partition, offset.",
)
@click.option("--force", is_flag=True, help="Also what a recorded reader has not finished.")
@verb("offsets:delete_records")
def delete_records() -> None:
    """Delete the records below an offset, -1: all there are; print where the logs begin now.

    The bytes go with the next maintenance, a whole segment at a time.

    \b
    Examples:
      streamlog delete-records orders:0:1200 orders:1:-1
      streamlog delete-records --offset-json-file offsets.json
    """


@streamlog.command(short_help="Print what files hold.", epilog=JSON_SHAPES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--print-data-log", is_flag=True, help="Print the records, too.")
@click.option(
    "--encoding",
    type=click.Choice(("utf8", "base64", "hex")),
    default="utf8",
    show_default=True,
    help="How keys, values and header values become text.",
)
@click.option("--deep-iteration", is_flag=True, help="Decode the records, not only the batches.")
@click.option("--verify-index-only", is_flag=True, help="Print no index entries, only check them.")
@click.option("--index-sanity-check", is_flag=True, help="Only whether an index can be right.")
@click.option(
    "--max-bytes", type=click.IntRange(min=0), metavar="N", help="Read so much of a log file."
)
@click.option("--offsets-decoder", is_flag=True, help="The log is of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="It is of __transaction_state.")
@decompressing
@verb("dump:dump")
def dump() -> None:
    """Print what files hold: batches, index entries, producers, epochs, checkpoints.

    Any file of a partition's directory or a log root, whoever wrote it: .log .index .timeindex
    .txnindex .snapshot, leader-epoch-checkpoint, the *-offset-checkpoint files,
    partition.metadata, meta.properties. A table looks like the output of kafka-dump-log; ndjson
    loses nothing. Indexes are held against their log. What is wrong is told on stderr, behind
    what could be read, and the exit code is 1.

    \b
    Examples:
      streamlog dump /tmp/log/orders-0/00000000000000000000.log --print-data-log
      streamlog dump /var/lib/kafka/orders-0/*.index --format ndjson
      streamlog dump /var/lib/kafka/__consumer_offsets-0/*.log --offsets-decoder
    """


@streamlog.command(short_help="Look for damage.", epilog=JSON_SHAPES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--deep", is_flag=True, help="Decode every record, too.")
@decompressing
@verb("verify:verify")
def verify() -> None:
    """Look for damage in a log root, in partitions' directories, in single files.

    Every batch is read and its checksum compared; indexes, producer snapshots, epochs and
    checkpoints are held against the log; of a log root made by streamlog also settings, pending
    commits, ledgers and readers. Nothing is changed, whoever wrote it. Beside writers what seems
    wrong is looked at again, and reported only if it stays.
    Prints what it finds and exits with 1 where that is anything; 0 means sound. Things that are
    no damage (files waiting to be removed, what is only in progress) go to stderr.

    \b
    Examples:
      streamlog verify /var/lib/kafka
      streamlog verify /tmp/log/orders-0 --deep
      streamlog verify /tmp/log/orders-0/00000000000000000000.index --format json
    """


@streamlog.command(short_help="Cut torn tails, make indexes anew.", epilog=JSON_SHAPES)
@click.argument("directory", metavar="PATH", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option(
    "--skip-damage",
    is_flag=True,
    help="Go on without damaged records; the files as they were stay as *.corrupt-N.",
)
@verb("verify:repair")
def repair() -> None:
    """Do what opening for writing does: cut a torn tail, make indexes anew; and say each step.

    PATH is a log root or a partition's directory; nobody may have it open for writing. Of a root
    what lies below .streamlog is looked at first: settings, commits, readers. What is
    cut is kept beside the log as *.torn-N. Damage to records that were synced, or that sound
    ones follow, is refused: nothing of that partition is changed, and the exit code is 1. With
    --skip-damage the partition goes on without it, and sound records behind it can be read again;
    files of .streamlog that cannot be read are moved to .streamlog/damaged, and each step says what
    is lost with them.

    \b
    Examples:
      streamlog repair /tmp/log --dry-run
      streamlog repair /tmp/log/orders-0
      streamlog repair /tmp/log/orders-0 --skip-damage
    """


@streamlog.command(short_help="Delete and compact what is due.", epilog=JSON_SHAPES)
@click.option("--once", is_flag=True, help="Do what there is to do, and end; so it is unless told.")
@click.option("--every", metavar="DURATION", help="Go on until Ctrl-C, each 30s, 5m, 1h …")
@click.option("--dry-run", is_flag=True, help="Only say what would go; nothing is changed.")
@verb("maintain:maintain")
def maintain() -> None:
    """Delete and compact what the topics' settings let go, and say what and why.

    Recorded readers keep what they have not finished: see streamlog readers.

    \b
    Examples:
      streamlog --path /tmp/log maintain --dry-run
      streamlog --path /tmp/log maintain --every 5m
    """


@streamlog.group(short_help="Record who reads this root.")
@verb()
def readers() -> None:
    """Record who reads this root: maintenance keeps what a recorded reader has not finished.

    A query with the option kafka.group.id records itself.
    """


@readers.command("list", short_help="List the recorded readers.", epilog=JSON_SHAPES)
@verb("readers:list_")
def readers_list() -> None:
    """List the recorded readers, where each is, and how many bytes are kept for it.

    \b
    Example:
      streamlog --path /tmp/log readers list
    """


@readers.command("add", short_help="Record a query by its checkpoint.", epilog=JSON_SHAPES)
@click.argument("name")
@click.option(
    "--checkpoint", required=True, metavar="DIR", help="The query's checkpointLocation, local."
)
@verb("readers:add")
def readers_add() -> None:
    """Record a query that knows nothing of it, by its checkpoint; one of Kafka's source will do.

    \b
    Example:
      streamlog --path /tmp/log readers add audit --checkpoint /data/checkpoints/audit
    """


@readers.command(
    "forget",
)
@click.argument("name")
@verb("readers:forget")
def readers_forget() -> None:
    """Strike a reader off: nothing is kept for it any more.

    \b
    Example:
      streamlog --path /tmp/log readers forget audit
    """


@streamlog.command(short_help="Print how far queries are behind.", epilog=JSON_SHAPES)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR",
    help="A query's checkpointLocation; may be repeated. Without one: every recorded reader.",
)
@click.option(
    "--over", type=click.IntRange(min=0), metavar="N", help="Exit with 1 where a lag is above N."
)
@verb("readers:lag")
def lag() -> None:
    """Print how many offsets queries are behind, as kafka-consumer-groups does.

    What a query has finished counts; also one of Spark's own Kafka source, for the topics that
    are here. A partition that was added since, and a topic that was deleted and created again,
    has no current offset: it lags by all that it holds.

    \b
    Example:
      streamlog --path /tmp/log lag --checkpoint /data/checkpoints/audit --over 100000
    """


@streamlog.command(epilog=f"{JSON_SHAPES} Rules: streamlog/handover/HANDOVER.md.")
@click.option("--to-kafka", is_flag=True, help="Make the root the log.dir of a KRaft broker.")
@click.option("--from-kafka", is_flag=True, help="Take it back; the broker must be stopped.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@verb("handover:handover")
def handover() -> None:
    """Give the log root to a Kafka broker, or take it back.

    The broker gets every topic with its id, settings, records and leader epochs, and is the one
    broker of its cluster; nobody else may write there until the root comes back. Nothing is
    changed where something speaks against it. A handover that was cut short is finished by the
    same command.

    \b
    Examples:
      streamlog --path /data/log handover --to-kafka --dry-run
      streamlog --path /data/log handover --to-kafka
      streamlog --path /data/log handover --from-kafka
    """


@streamlog.command()
@click.option(
    "--warm-up", is_flag=True, help="Compile all kernels first, ahead of their first use."
)
@verb("doctor:doctor")
def doctor() -> None:
    """Check Python, packages, Spark's Python, Java and the log root; print a cure for each fault.

    The exit code is 1 where something will not work.

    \b
    Examples:
      streamlog doctor
      streamlog doctor --warm-up
      streamlog --path /tmp/log doctor --format json
    """
