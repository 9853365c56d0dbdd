"""`streamlog dump`: what a file of a partition or a log root holds."""

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, decompressing, reading_verb

__all__ = ["dump"]


@click.command(short_help="Print what files hold.", epilog=JSON_SHAPES)
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
@reading_verb
def dump(
    settings: Settings,
    *,
    files: tuple[str, ...],
    print_data_log: bool,
    encoding: str,
    deep_iteration: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int | None,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    max_decompressed_bytes: int | None,
) -> None:
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
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("--offsets-decoder and --transaction-log-decoder exclude each other")
    from streamlog.cli.dumping import Dumping, dump_files
    from streamlog.cli.output import Output
    from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
    from streamlog.protocol.internal_topics import Decoder

    decoder = None
    if offsets_decoder or transaction_log_decoder:
        decoder = Decoder.OFFSETS if offsets_decoder else Decoder.TRANSACTIONS
    wanted = Dumping(
        encoding=encoding,
        with_records=print_data_log or decoder is not None,
        is_deep=deep_iteration or print_data_log or decoder is not None,
        entries=not (verify_index_only or index_sanity_check),
        only_sanity=index_sanity_check,
        max_bytes=max_bytes,
        decoder=decoder,
        max_decompressed=max_decompressed_bytes or DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    dump_files(Output(settings), files, wanted)
