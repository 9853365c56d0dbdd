"""The command's interface, continued: the verbs of replicas; see `streamlog.cli.commands`."""

from typing import Final

import click

from streamlog.cli.verb import JSON_SHAPES, verb

__all__ = ["REPLICA_COMMANDS"]


@click.group(short_help="Manage the log roots that hold replicas.")
@verb()
def replicas() -> None:
    """Manage the log roots that hold replicas: directories on other disks, mounts or hosts.

    Every root keeps the list of all of them. A majority of the listed roots must be online to
    create or change topics and to elect leaders, so use three roots to survive the loss of one.

    \b
    Example:
      streamlog --path /disk1/log replicas add /disk2/log
      streamlog --path /disk1/log replicas add /disk3/log
      streamlog --path /disk1/log topics create orders --replication-factor 3
    """


@replicas.command("add", short_help="Add a log root.", epilog=JSON_SHAPES)
@click.argument("new_root", metavar="ROOT", type=click.Path())
@verb("replicas:add")
def replicas_add() -> None:
    """Add a log root to those that hold replicas, and print the list.

    ROOT is a missing or empty directory, or a root of the set that has moved. It becomes a log
    root with the next free node.id. Topics get replicas in it if they are created afterwards. A
    root that is listed is restored: it takes the topics and settings that it missed.

    \b
    Examples:
      streamlog --path /disk1/log replicas add /disk2/log
      streamlog --path /disk1/log replicas add /disk3/log
    """


@replicas.command("remove", short_help="Remove a log root.")
@click.argument("name", metavar="NODE|ROOT")
@verb("replicas:remove")
def replicas_remove() -> None:
    """Remove a log root without replicas from the list. Its own topics stay.

    It need not be online.

    \b
    Examples:
      streamlog --path /disk1/log replicas remove 3
      streamlog --path /disk1/log replicas remove /disk3/log
    """


@replicas.command("list", short_help="List the log roots.", epilog=JSON_SHAPES)
@verb("replicas:list_")
def replicas_list() -> None:
    """List the log roots that hold replicas, and whether they are online.

    A root is offline while its directory is missing or unreadable, holds another log root, or was
    a mount point when it was added and is not one now.

    \b
    Example:
      streamlog --path /disk1/log replicas list
    """


@replicas.command("status", short_help="Print metrics of replication.", epilog=JSON_SHAPES)
@verb("replica_status:status")
def replicas_status() -> None:
    """Print Kafka's metrics of replication over all partitions.

    Exits with 1 if a partition is under-replicated or has no leader online. A replica counts as in
    sync only if its log root is online, even before the next append shrinks the ISR.

    IsrShrinks, IsrExpands and UncleanLeaderElections count since the partitions were created.

    \b
    Examples:
      streamlog --path /disk1/log replicas status
      streamlog replicas status --format ndjson | jq .UnderReplicatedPartitions
    """


@click.command(short_help="Elect leaders.", epilog=JSON_SHAPES)
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:PARTITION]]…")
@click.option(
    "--preferred", is_flag=True, help="Return the leadership to the first replica, if in sync."
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Without a leader, take any replica that is online; may lose acknowledged records.",
)
@click.option(
    "--commits",
    is_flag=True,
    help="With --unclean: elect the root that leads the commits; may lose decided commits.",
)
@verb("replication:elect")
def elect() -> None:
    """Elect the leaders of partitions; without an argument, of all partitions.

    The next writer replaces a lost leader without this command. --unclean is for a
    partition of which no replica in sync is left. It also goes on without a majority of the log
    roots: those that can be reached decide from then on.

    \b
    Examples:
      streamlog --path /disk1/log elect --preferred
      streamlog elect --unclean orders:0
      streamlog elect --unclean --commits orders
    """


@click.command(short_help="Move a partition to other log roots.", epilog=JSON_SHAPES)
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.option(
    "--replicas",
    required=True,
    metavar="NODE,NODE,…",
    help="Nodes that hold the partition afterwards, the preferred leader first.",
)
@verb("replication:reassign")
def reassign() -> None:
    """Move the replicas of a partition to other log roots, or change their number.

    New replicas are copied, with a progress bar on a terminal, and join the ISR before old ones are
    dropped. The directory of a replica that is dropped is set aside, not removed. Repeat the
    command to continue an interrupted one: it copies only what is missing.

    \b
    Examples:
      streamlog --path /disk1/log reassign orders:0 --replicas 1,2,4
    """


@click.command(short_help="Bring replicas up to date.", epilog=JSON_SHAPES)
@click.option("--once", is_flag=True, help="Run once and exit (default).")
@click.option("--follow", is_flag=True, help="Keep replicas up to date until SIGTERM or Ctrl-C.")
@verb("replication:replicate")
def replicate() -> None:
    """Bring all replicas up to date, and fill replaced disks.

    Writers copy what they append. This command does the rest: a log root that returned or was
    emptied, and elections for partitions that nothing writes. While --follow runs, writers leave it
    the copies of appends with acks=0 and acks=1.

    Exits with 1 if a replica could not catch up.

    \b
    Examples:
      streamlog --path /disk1/log replicate --once
      streamlog --path /disk1/log,/disk2/log,/disk3/log replicate --follow
    """


REPLICA_COMMANDS: Final = (replicas, elect, reassign, replicate)
