"""The seeded bugs: each an edit of source text, with the kind of fault or the test that detects it.

This module must not import the package, because a bug is seeded while the package is imported. Bugs
from 33 on are specific to this package. Two bugs change no answer of a log, so unit tests look for
them: an entry that a time index keeps after a truncation (18) is verified on each use, and without
one length check in the record parser (32) three other checks still reject the same input.
"""

from typing import Final, NamedTuple

from tests.programs.reliability.bugs.patching import Edit


class Bug(NamedTuple):
    """A bug.

    `name`: The wrong behaviour.
    `edits`: The changes that cause it.
    `kind`: The kind of fault that exposes it; for `pytest`, a test does.
    `operations`: The workload, or the tests. Empty: all named workloads in turn. Operations before
        `TROUBLE` run undisturbed.
    `compiles`: Whether kernels are compiled. A bug in a kernel needs them to run as Python.
    """

    name: str
    edits: tuple[Edit, ...]
    kind: str
    operations: tuple[str, ...] = ()
    compiles: bool = True


TROUBLE: Final = "|"
COMMITS: Final = "streamlog.commits"
CRASHING_STORE: Final = "crashes with an object store"
FAILING_STORE: Final = "failing object stores"
LOCAL_LOG: Final = "streamlog.partition.local_log"
RECOVERY: Final = "streamlog.segment.recovery"

# fmt: off
BUGS: Final = (
    Bug("01 data is not synced", (
        Edit(LOCAL_LOG,
             "                segment.sync(leave_names=leave_names and is_active)\n"
             "        except StorageError as error:\n"
             "            raise PoisonedError(",
             "                pass\n        except StorageError as error:\n"
             "            raise PoisonedError("),
    ), "crashes", ("append", TROUBLE, "append", "flush")),
    Bug("02 an append is acknowledged before the sync that its topic requires", (
        Edit("streamlog.partition.session",
             "                self.sync(now_ms)\n            except PoisonedError:\n",
             "                pass\n            except PoisonedError:\n"),
    ), "crashes", ("append", "alter config", TROUBLE, "append")),
    Bug("03 the directory is not synced after a segment is created", (
        Edit(LOCAL_LOG,
             "        segment.sync()\n        self._fs.sync_directory(self._path)\n"
             "        self.segments = to",
             "        segment.sync()\n        self.segments = to"),
        Edit("streamlog.segment.segment",
             "        if self.names_changed and not is_done:\n", "        if False:\n"),
    ), "crashes", ("append", TROUBLE, "roll", "append", "flush")),
    Bug("04 a checkpoint is renamed before it is synced", (
        Edit("streamlog.fs.files",
             "            file.pwrite(data, 0)\n            file.sync()\n",
             "            file.pwrite(data, 0)\n"),
    ), "crashes", ("append", TROUBLE, "commit", "append")),
    Bug("05 a compacted segment is swapped in before it is synced", (
        Edit("streamlog.cleaner.round", "            cleaned.sync()\n", ""),
    ), "crashes", ("append", "append", "roll", TROUBLE, "clean")),
    Bug("06 old segments are removed before the new one is durable", (
        Edit(LOCAL_LOG,
             "SegmentSuffix.SWAP)\n        self._fs.sync_directory(directory)\n        leftovers",
             "SegmentSuffix.SWAP)\n        leftovers"),
    ), "crashes", ("append", "append", "roll", TROUBLE, "clean")),
    Bug("07 a failed sync is retried", (
        Edit(LOCAL_LOG,
             "                segment.sync(leave_names=leave_names and is_active)\n"
             "        except StorageError as error:\n"
             "            raise PoisonedError(",
             "                try:\n                    segment.sync(leave_names=leave_names)\n"
             "                except StorageError:\n"
             "                    segment.close()\n                    segment.sync()\n"
             "        except StorageError as error:\n            raise PoisonedError("),
    ), "errors", ("append", TROUBLE, "append", "flush")),
    Bug("08 cached data counts as durable after a failed sync", (
        Edit(LOCAL_LOG, "                segment.copy_afresh()\n", "                pass\n"),
    ), "errors", ("append", "append", "append", "append", "append", TROUBLE, "flush")),
    Bug("09 a short write counts as complete", (
        Edit("streamlog.fs.local", "            if count < size:\n", "            if False:\n"),
    ), "short transfers"),
    Bug("10 a short read counts as complete", (
        Edit("streamlog.fs.local",
             "            if len(found) == size or not found:\n", "            if True:\n"),
    ), "short transfers"),
    Bug("11 a torn tail is not truncated", (
        Edit(RECOVERY, "        records.file.truncate(place.position)\n", ""),
    ), "crashes", ("append", TROUBLE, "append")),
    Bug("12 recovery continues after a hole", (
        Edit(RECOVERY,
             "    case, known = _judge(log, place, around, restore)\n    restored_size = 0\n",
             "    hole = _next_sound(log.records, log.base_offset, place, end)\n"
             "    if hole is not None and hole > place.position:\n"
             "        place = _walk(log, place._replace(position=hole), end, on_batch)[0]\n"
             "    case, known = _judge(log, place, around, restore)\n    restored_size = 0\n"),
    ), "pytest", ("tests/segment/test_recovery_power.py",)),
    Bug("13 damage below the recovery point is truncated", (
        Edit("streamlog.segment.recovery_table",
             '_REFUSE, "synced records are damaged"', '_CUT, "synced records are damaged"'),
    ), "flips", ("append", "append batches", "append")),
    Bug("14 the clean-shutdown marker stays while a writer is active", (
        Edit("streamlog.root.open_writers",
             "is_clean = root.fs.stat(mark) is not None\n", "is_clean = False\n"),
    ), "crashes", ("append", "reopen", TROUBLE, "append")),
    Bug("15 the recovery point is written before the sync", (
        Edit("streamlog.partition.log",
             "            self._session.sync(self._clock.now_ms())\n",
             "            self._session.write_recovery_point(self.log_end_offset)\n"
             "            self._session.sync(self._clock.now_ms())\n"),
    ), "crashes", ("append", TROUBLE, "append", "flush")),
    Bug("16 the recovery point stays above a truncation", (
        Edit("streamlog.partition.session",
             "write_recovery_point(min(log.offsets.recovery_point, log.end_before(offset)))",
             "write_recovery_point(log.offsets.recovery_point)"),
    ), "crashes", ("append", "append", "flush", TROUBLE, "truncate")),
    Bug("17 an index is trusted without checks", (
        Edit("streamlog.segment.file_records",
             "NO_PROMISE) if entry is None else (entry.position, entry.offset)",
             "NO_PROMISE) if entry is None else (entry.position, NO_PROMISE)"),
    ), "flips", ("append batches", "append batches", "append batches", "append batches")),
    Bug("18 a time index keeps truncated entries", (
        Edit("streamlog.segment.indexes",
             "        self.offset.truncate_to(offset)\n        self.time.truncate_to(offset)\n",
             "        self.offset.truncate_to(offset)\n"),
    ), "pytest", ("tests/segment/test_segment.py",)),
    Bug("22 truncated leader epochs are kept", (
        Edit(LOCAL_LOG,
             "(start, end, recovery_point)\n        self.truncate_epochs()\n",
             "(start, end, recovery_point)\n"),
    ), "crashes", ("append", "append batches", "append batches", TROUBLE, "truncate")),
    Bug("24 other writers are detected only when a handle is opened", (
        Edit("streamlog.partition.locks",
             "if data != self._left or self.flags in MUST_LOOK:", "if self._left is None:"),
    ), "crashes", ("append", "append elsewhere", TROUBLE, "append")),
    Bug("25 compaction drops the last batch before its end", (
        Edit("streamlog.cleaner.rules",
             "        ways[loses_all] = k.ALL_GO\n",
             "        ways[loses_all | (table.last_offset + 1 == self.round_end)] = k.ALL_GO\n"),
    ), "crashes", ("append", "append", "roll", "clean", TROUBLE, "append")),
    Bug("26 the first compaction drops tombstones", (
        Edit("streamlog.cleaner.rules",
             "np.where(is_due, k.LAST_VALUES_STAY, k.LAST_STAY)",
             "np.full(len(table), k.LAST_VALUES_STAY)"),
    ), "crashes", ("append batches", "roll", "clean", TROUBLE, "append")),
    Bug("27 compaction touches the active segment", (
        Edit("streamlog.cleaner.choosing",
             "end, changes_ms = segments[-1].base_offset,",
             "end, changes_ms = log.log_end_offset,"),
        Edit("streamlog.cleaner.choosing",
             "        end = segments[_floor(segments, end)].base_offset\n", "        pass\n"),
    ), "crashes", ("append", "roll", "append batches", "append", "clean", TROUBLE, "append")),
    Bug("28 retention uses the age of files", (
        Edit("streamlog.maintenance.retention",
             "each.segment.largest_timestamp > limit", "each.segment.created_ms > limit"),
    ), "clocks", ("append", "roll", "append", "reopen", "retain")),
    Bug("29 a commit is applied before it is decided", (
        Edit(f"{COMMITS}.commit_log",
             "            self._decide(decision, logs, term)\n"
             "            self._apply(decision, logs, reader, request, held)\n",
             "            self._apply(decision, logs, reader, request, held)\n"
             "            self._decide(decision, logs, term)\n"),
        Edit(f"{COMMITS}.commit_log", "            held.let_go(log)\n", ""),
    ), "crashes", ("append", TROUBLE, "commit")),
    Bug("30 a committed version counts as a replay whatever its rows", (
        Edit(f"{COMMITS}.replay",
             "Place.OTHER,          _,                  OnMismatch.FAIL,   Verdict.REFUSE",
             "Place.OTHER,          _,                  OnMismatch.FAIL,   Verdict.SKIP"),
    ), "crashes", ("commit", "commit other", TROUBLE, "append")),
    Bug("31 a source goes back with the log end", (
        Edit("streamlog.spark.planning",
             "        if offset > bounds.log_end_offset:\n", "        if False:\n"),
    ), "pytest", ("tests/spark/test_stream_reader.py::test_end_that_went_back",)),
    Bug("32 a number is read past the end of its record", (
        Edit("streamlog.binary.varint",
             "    if size > end - position:\n        return 0\n", ""),
    ), "pytest", ("tests/binary/test_varint.py",), compiles=False),
    Bug("33 checksums are not compared", (
        Edit("streamlog.records.batch_kernels",
             "+= crc_of_batch(buffer, position, size) == out_fields[count, CRC]\n", "+= 1\n"),
    ), "flips", ("append", "append batches", "append"), compiles=False),
    Bug("34 a failing sync can be recorded only afterwards", (
        Edit("streamlog.partition.session",
             "        log.before_sync = lock.mark_distrusted\n", ""),
    ), "errors", ("append", "append", "append", "append", "append", TROUBLE, "flush")),
    Bug("35 recovery does not sync the names left by a dead writer", (
        Edit("streamlog.partition.loader",
             "        fs.sync_directory(path)  # a process that rolled may have died\n",
             "        pass\n"),
    ), "pytest", ("tests/commits/test_half_done.py",)),
    Bug("36 data left unwritten by a failed sync is rewritten in place", (
        Edit(LOCAL_LOG,
             "                segment.copy_afresh()\n",
             "                segment._log.records.append(segment.read(0, segment.size), 0)\n"
             "                segment._files.is_dirty = True\n"),
    ), "errors", ("append", "append", "append", "append", "append", TROUBLE, "flush")),
    Bug("37 a log start that could not be synced is relied on", (
        Edit(LOCAL_LOG,
             "            sync_log_starts()  # the process that raised it may have died\n",
             ""),
    ), "errors", ("append", "roll", "append", TROUBLE, "retain", "wait", "retain", "append")),
    Bug("38 a tail truncated when its writer died comes back", (
        Edit(LOCAL_LOG,
             "            self.before_sync()  # or a power cut could undo what readers have seen\n",
             ""),
    ), "pytest", ("tests/commits/test_half_done.py",)),
    Bug("39 a log start is written before the data below it is synced", (
        Edit("streamlog.partition.session",
             "                log.sync(self._clock.now_ms())\n",
             "                pass\n"),
    ), "crashes", ("commit", "delete records")),
    Bug("40 an offset lost in a power cut counts as damage", (
        Edit("streamlog.segment.walk", "    if size >= LOG_OVERHEAD:\n", "    if size > 0:\n"),
    ), "pytest", ("tests/segment/test_recovery_power.py",)),
    Bug("50 a temporary file has a name that another file may have", (
        Edit("streamlog.fs.names",
             '    temporary = f".{base}~{os.getpid()}-{next(_numbers)}{TEMPORARY_SUFFIX}"\n',
             '    temporary = f"{base}{TEMPORARY_SUFFIX}"\n'),
    ), "pytest", ("tests/root/test_names.py::"
                  "test_no_ledger_is_destroyed_by_the_temporary_file_of_another_app",)),
    Bug("51 a directory counts as durable because it exists", (
        Edit("streamlog.fs.files",
             "    if fs.stat(mark) is not None:\n        return\n", "    return\n"),
    ), "pytest", ("tests/crash/test_name_crash.py::"
                  "test_commits_after_a_dead_process_outlive_a_power_cut_that_takes_all_it_may",)),
    Bug("52 two writers of a file share its temporary name", (
        Edit("streamlog.fs.names", "{os.getpid()}-{next(_numbers)}", "0-0"),
    ), "pytest", ("tests/root/test_names.py::"
                  "test_queries_with_one_group_id_write_their_progress_side_by_side",)),
    Bug("76 one bad byte makes a decision unreadable", (
        Edit("streamlog.binary.sealed",
             "(0, -(-len(content) // (2 * _PAGE)) * _PAGE):", "(0,):"),
    ), "pytest", ("tests/commits/test_commits.py::test_one_bad_byte_in_a_decision_is_tolerated",)),
    Bug("77 a damaged decision of one app stops the partitions of all", (
        Edit(f"{COMMITS}.pending",
             "            if not topics or partition.topic in topics:\n", "            if True:\n"),
    ), "pytest", ("tests/commits/test_commits.py::"
                  "test_a_decision_without_a_whole_copy_stops_the_topics_of_its_app",)),
    Bug("78 files below .streamlog are not checked", (
        Edit("streamlog.health.verify",
             "    if is_our_root(root):\n        verify_state(",
             "    if False:\n        verify_state("),
    ), "pytest", ("tests/health/test_state_files.py",)),
    Bug("79 a repair gives decided offsets to other records", (
        Edit("streamlog.health.repair_state",
             "            _fill(log, part.last_offset + 1, part.leader_epoch)\n", ""),
    ), "pytest", ("tests/health/test_repair_state.py::"
                  "test_going_on_without_staged_rows_keeps_the_commit_and_its_other_partition",)),
    Bug("80 verify trusts its first pass beside active writers", (
        Edit("streamlog.health.repeated",
             "        return is_brokers or may_be_open(self._root)\n",
             "        return False\n"),
    ), "pytest", ("tests/health/test_live.py",)),
    Bug("83 a query is recorded as a reader only when its next batch is planned", (
        Edit("streamlog.spark.reader",
             "            self._record(self._initial)\n", ""),
        Edit("streamlog.spark.reader",
             "        self._record(start)  # no batch is under way: all up to here is in the "
             "checkpoint\n", ""),
        Edit("streamlog.spark.reader",
             '        """Do nothing: `latestOffset` recorded the position before Spark planned the '
             'next batch."""\n',
             "        self._record(end)\n"),
    ), "pytest", ("tests/spark/test_stream_reader.py",)),
    Bug("95 an abort marker without an index entry is not seen", (
        Edit("streamlog.partition.read", "in unindexed if", "in () if"),
    ), "pytest", ("tests/partition/test_isolation.py",)),
    Bug("41 the target of a txnAppId is not part of the identity", (
        Edit(f"{COMMITS}.identity",
             'return cls(f"{writer}/{topic or _ROWS_NAME_TOPICS}", version, former=former)',
             'app = txn_app_id or f"{writer}/{topic or _ROWS_NAME_TOPICS}"\n'
             "        return cls(app, version)"),
    ), "pytest", ("tests/spark/test_sink_commit.py::"
                  "test_one_version_of_one_writer_goes_to_two_topics",)),
    Bug("42 a run is identified by a job group that its function may change", (
        Edit("streamlog.spark.foreach_batch",
             "return cls(query_id, str(query.runId()),",
             'run_id = context.getLocalProperty("spark.jobGroup.id")\n'
             "        return cls(query_id, run_id,"),
    ), "pytest", ("tests/spark/test_foreach_batch.py::"
                  "test_a_job_group_of_the_users_does_not_hide_a_second_append",)),
    Bug("47 a log restored from an older copy is not detected", (
        Edit(f"{COMMITS}.replay",
             "    if noted is not None and last_version < noted and last_version + 1 < version:\n",
             "    if False:\n"),
    ), "pytest", ("tests/query/test_checkpoint_note.py",)),
    Bug("48 the session's checkpoint location is ignored", (
        Edit("streamlog.spark.writer",
             "    if reported.session_location is None:\n", "    if True:\n"),
    ), "pytest", ("tests/spark/test_sink_commit.py",)),
    Bug("44 rows are not compared although the source line identifies nothing", (
        Edit(f"{COMMITS}.fingerprint",
             "            Naming.NOTHING: same_rows,\n", "            Naming.NOTHING: True,\n"),
    ), "pytest", ("tests/commits/test_fingerprint.py",)),
    Bug("45 a commit of another query counts as a replay", (
        Edit(f"{COMMITS}.fingerprint",
             "        if _differ(self.query_id, other.query_id):\n", "        if False:\n"),
    ), "pytest", ("tests/spark/test_sink_commit.py",)),
    Bug("46 a file source is identified by its running number, not by its input", (
        Edit("streamlog.query.checkpoint",
             "            namings.append(Naming.NOTHING if entries is None else Naming.BATCH)\n",
             "            namings.append(Naming.BATCH)\n            continue\n"),
    ), "pytest", ("tests/query/test_checkpoint.py",)),
    Bug("43 a commit under the name without a target is repeated after an upgrade", (
        Edit(f"{COMMITS}.inheritance",
             "    if history.is_new and inheritance is not None:\n", "    if False:\n"),
    ), "pytest", ("tests/commits/test_inheritance.py",)),
    Bug("64 an append fails with the checkpoint due after it", (
        Edit("streamlog.partition.session",
             "            except UnavailableError as error:\n                _logger",
             "            except KeyError as error:\n                _logger"),
    ), "pytest", ("tests/partition/test_append_faults.py",)),
    Bug("65 a truncated log ends above its last batch", (
        Edit(LOCAL_LOG,
             "        end = max(self.segments.active.next_offset(), start)\n",
             "        end = offset\n"),
    ), "pytest", ("tests/commits/test_decided_holes.py",)),
    Bug("66 a deleted topic's directory is removed before its last writer's state", (
        Edit("streamlog.root.registry",
             "        lock.file.truncate(0)\n        root.fs.rename(path, aside)\n",
             "        root.fs.rename(path, aside)\n        lock.file.truncate(0)\n"),
    ), "pytest", ("tests/root/test_registry.py",)),
    Bug("56 a retirement writes a recovery point for each partition", (
        Edit(f"{COMMITS}.retirement",
             "                log.sync()\n", "                log.flush()\n"),
    ), "pytest", ("tests/commits/test_commit_cost.py",)),
    Bug("57 a retirement syncs an app's logs under its lock", (
        Edit(f"{COMMITS}.commit_log",
             "        settled = self._retirement.settle(app)\n"
             "        with contextlib.ExitStack() as held:\n"
             "            with self._app_lock(app, timeout_ms=timeout_ms):\n",
             "        with contextlib.ExitStack() as held:\n"
             "            with self._app_lock(app, timeout_ms=timeout_ms):\n"
             "                settled = self._retirement.settle(app)\n"),
    ), "pytest", ("tests/commits/test_commit_cost.py",)),
    Bug("90 an iteration over records ends with the first read", (
        Edit("streamlog.partition.iteration",
             "            )\n        offset = info.next_offset\n",
             "            )\n        return\n"),
    ), "pytest", ("tests/partition/test_iteration.py",)),
    Bug("91 a consumer skips records removed by retention", (
        Edit("streamlog.root.consumer",
             "        if not reader.log_start_offset <= self.position",
             "        self.position = max(self.position, reader.log_start_offset)\n"
             "        if not reader.log_start_offset <= self.position"),
    ), "pytest", ("tests/root/test_consumer.py",)),
    Bug("92 a producer closes without its buffered records", (
        Edit("streamlog.root.producer",
             "                if self._failure is None:\n                    self.flush()\n",
             "                pass\n"),
    ), "pytest", ("tests/root/test_producer.py",)),
    Bug("58 staged data is checked while its partitions are locked", (
        Edit(f"{COMMITS}.admission",
             "range(CHECKS_WITHOUT_LOCKS)", "range(0)"),
    ), "pytest", ("tests/partition/test_lock_waits.py",)),
    Bug("59 app locks share a directory with partition locks", (
        Edit("streamlog.fs.log_root",
             'return f"{self.locks}/apps"', "return self.locks"),
    ), "pytest", ("tests/partition/test_lock_waits.py",)),
    Bug("60 an app remembers the partitions of deleted topics forever", (
        Edit(f"{COMMITS}.retirement",
             "            gone |= self._of_deleted_topics(standing)\n", ""),
    ), "pytest", ("tests/commits/test_commit_growth.py",)),
    Bug("61 decisions retired during a commit count as unretired forever", (
        Edit(f"{COMMITS}.history",
             "    if standing.unretired == len(live):\n", "    if True:\n"),
    ), "pytest", ("tests/commits/test_commit_growth.py::"
                  "test_commits_made_during_a_retirement_do_not_count_what_it_retired",)),
    Bug("67 records count as durable in a file that lost its name", (
        Edit(LOCAL_LOG,
             "        self.check_named()  # synced records",
             "        # synced records"),
    ), "pytest", ("tests/partition/test_replaced_files.py",)),
    Bug("68 threads that share a reader interfere with each other", (
        Edit("streamlog.partition.reader",
             "        with self._guard:\n            return",
             "        if True:\n            return"),
    ), "pytest", ("tests/partition/test_shared_reader.py",)),
    Bug("69 Ctrl-C while taking or releasing a lock leaves it held", (
        Edit("streamlog.partition.locks",
             "            self._lock.settle(self._depth)\n", "            pass\n"),
    ), "pytest", ("tests/partition/test_interrupts.py",)),
    Bug("70 a large batch after a small one is collected by the driver", (
        Edit("streamlog.spark.small_batch",
             "MAX_ROWS: Final = 50_000\n", "MAX_ROWS: Final = 50_000_000\n"),
    ), "pytest", (
        "tests/spark/test_foreach_batch.py::"
        "test_a_large_batch_after_a_small_one_is_not_collected",
    )),
    Bug("71 rows beyond the driver's capacity are omitted", (
        Edit("streamlog.spark.small_batch",
             "    if whole < table.num_rows:\n", "    if not whole:\n"),
    ), "pytest", (
        "tests/spark/test_foreach_batch.py::"
        "test_a_large_batch_after_a_small_one_is_not_collected",
    )),
    Bug("72 decoding is limited by compressed size alone", (
        Edit("streamlog.records.decode", "        enough=wanted.max_bytes,\n", ""),
    ), "pytest", ("tests/records/test_pieces.py",)),
    Bug("73 the sink builds batches too large to decompress on reading", (
        Edit("streamlog.arrow.encoder",
             "                        max_decompressed=target.rules.max_decompressed_bytes,\n", ""),
    ), "pytest", ("tests/arrow/test_encoder.py",)),
    Bug("74 a commit is decided that no reader can decompress", (
        Edit(f"{COMMITS}.admission",
             "        _check_decompressed(buffer, table, rules, where)\n", ""),
    ), "pytest", ("tests/commits/test_admission.py",)),
    Bug("19 the high watermark of a replica is its log end", (
        Edit(LOCAL_LOG,
             "        self._offsets_of = self._offsets_of_replica\n", "        pass\n"),
    ), "pytest", ("tests/partition/test_replicated.py",)),
    Bug("20 a high watermark above the log end is loaded", (
        Edit(LOCAL_LOG,
             "            self.offsets = self.offsets.with_high_watermark(known)\n",
             "            self.offsets = self.offsets._replace(high_watermark=known)\n"),
    ), "pytest", ("tests/partition/test_replicated.py",)),
    Bug("96 a reader returns records above the high watermark", (
        Edit("streamlog.partition.reader",
             "            return LogOffsets(start, 0, end).with_high_watermark("
             "self._committed.offset)\n",
             "            return LogOffsets.of_one_replica(start, end)\n"),
    ), "pytest", ("tests/partition/test_high_watermark.py",)),
    Bug("97 a reader goes back to an older high watermark", (
        Edit("streamlog.partition.high_watermark",
             "            if now == self._epoch:\n", "            if False:\n"),
    ), "pytest", ("tests/partition/test_high_watermark.py",)),
    Bug("98 a reader keeps the high watermark of records that were replaced", (
        Edit("streamlog.partition.high_watermark",
             "            if now == self._epoch:\n", "            if True:\n"),
    ), "pytest", ("tests/partition/test_high_watermark.py",)),
    Bug("99 a digit of a checkpoint commits records", (
        Edit("streamlog.partition.high_watermark",
             "    return known if state is None else min(known, state.offsets.high_watermark)\n",
             "    return known\n"),
    ), "pytest", ("tests/partition/test_high_watermark.py",)),
    Bug("100 a truncation leaves a high watermark above it in the checkpoint", (
        Edit("streamlog.partition.session",
             "            self._marks.write_high_watermarks("
             "{self._partition: log.end_before(offset)})\n",
             "            pass\n"),
    ), "pytest", ("tests/partition/test_follower_truncation.py",)),
    Bug("101 the epoch of lost records is used again", (
        Edit("streamlog.partition.session",
             "        self._publish(LockEvent.REPLICA_MOVES)\n\n    def raise_high_watermark",
             "        is_due = self._lock.flags & StateFlag.EPOCH_DUE\n"
             "        self._publish(\n"
             "            LockEvent.EPOCH_RAISED if is_due else LockEvent.REPLICA_MOVES\n"
             "        )\n\n    def raise_high_watermark"),
    ), "pytest", ("tests/partition/test_replicated.py",)),
    Bug("102 a transaction is stable before its marker is committed", (
        Edit("streamlog.partition.producers",
             "            end_offset=committed,  # a later",
             "            end_offset=log_end_offset,  # a later"),
    ), "pytest", ("tests/partition/test_high_watermark.py",)),
    Bug("103 a follower applies decided commits", (
        Edit("streamlog.partition.session",
             "        if not self._log.is_replicated:\n            self.take_stock()\n",
             "        if True:\n            self.take_stock()\n"),
    ), "pytest", ("tests/commits/test_replica_decisions.py",)),
    Bug("104 a truncated replica keeps decided commits that its leader lacks", (
        Edit("streamlog.partition.replica",
             "            self._discard_decided_above(offset)\n"
             "            self._session.truncate(offset)\n",
             "            self._session.truncate(offset)\n"),
    ), "pytest", ("tests/commits/test_replica_decisions.py",)),
    Bug("105 segments that a restart deletes one by one look damaged", (
        Edit("streamlog.partition.session",
             "        self.write_recovery_point(0)  # no record", "        # no record"),
    ), "pytest", ("tests/partition/test_follower_truncation.py",)),
    Bug("106 epochs of a later format stand for records of an older one", (
        Edit("streamlog.partition.replica",
             "        self._log.clear_epochs()\n        newer", "        newer"),
        Edit("streamlog.partition.replica",
             "        self._log.clear_epochs()\n        info", "        info"),
    ), "pytest", ("tests/partition/test_follower_truncation.py",)),
    Bug("107 a repeated batch is acknowledged that too few replicas hold", (
        Edit("streamlog.partition.log",
             "                    replicated.repeated(self, repeated.last_offset + 1, acks)\n",
             "                    pass\n"),
    ), "pytest", ("tests/partition/test_replicated.py",)),
    Bug("121 a task reads the tail that a former leader left", (
        Edit("streamlog.arrow.reading",
             "and part.end_epoch in (-1, reader.epoch_for_offset(part.end_offset - 1))",
             "and True"),
    ), "pytest", ("tests/arrow/test_replica_ranges.py",)),
    Bug("122 a replica out of sync shows a loss", (
        Edit("streamlog.root.replica_reader",
             "        return path == self._leader_and_isr.leader"
             " or path in self._leader_and_isr.in_sync\n",
             "        return path in self._directories\n"),
    ), "pytest", ("tests/root/test_replica_roots.py",)),
    Bug("123 a former topic of the name is read", (
        Edit("streamlog.root.read_roots",
             "in online.get(topic, {}) and self._read_topic_id(directory) == wanted:",
             "in online.get(topic, {}):"),
        Edit("streamlog.root.replica_reader",
             "        if reader.topic_id != self.topic_id:\n", "        if False:\n"),
    ), "pytest", ("tests/spark/test_replica_roots.py",)),
    Bug("201 a lost answer of the journal counts as another writer's entry", (
        Edit("streamlog.bucket.journal",
             "return found[-1].mark == entry.mark\n", "return False\n"),
    ), FAILING_STORE, ("append", TROUBLE, "append")),
    Bug("202 an entry replaces the one that has its number", (
        Edit("streamlog.bucket.journal",
             "            self._store.create(key, content)\n",
             "            self._store.put(key, content)\n"),
    ), FAILING_STORE, ("append", TROUBLE, "append", "append other")),
    Bug("203 the hint counts as the last entry", (
        Edit("streamlog.bucket.journal",
             "        if self._read_next():  # a query finds",
             "        if False:  # a query finds"),
    ), FAILING_STORE, ("append", TROUBLE, "append")),
    Bug("204 a committed version is committed again", (
        Edit("streamlog.bucket.commits",
             "        if verdict in (Verdict.REPLAY, Verdict.SKIP):\n", "        if False:\n"),
    ), CRASHING_STORE, ("commit", TROUBLE, "commit")),
    Bug("205 staged batches keep their offsets", (
        Edit("streamlog.bucket.reading",
             "base_offset=stretch.base_offset, leader", "base_offset=0, leader"),
    ), CRASHING_STORE, ("append", "append", TROUBLE, "append")),
    Bug("206 a build leaves out its last extent", (
        Edit("streamlog.bucket.building",
             "builder.build(wanted.first_offset, wanted.end_offset)",
             "builder.build(wanted.first_offset, wanted.stretches[-1].base_offset)"),
    ), CRASHING_STORE, ("append", "append", TROUBLE, "roll")),
    Bug("207 an object goes while another partition needs it", (
        Edit("streamlog.bucket.state",
             "if self._count(key, -1) == 0]\n", "if self._count(key, -1) >= 0]\n"),
    ), CRASHING_STORE, ("commit", "commit", "delete records", TROUBLE, "delete records", "retire")),
    Bug("208 the indexes of a segment stay when it is deleted", (
        Edit("streamlog.bucket.collecting",
             "[name for key in due for name in files_of(key)]", "list(due)"),
    ), CRASHING_STORE, ("append batches", TROUBLE, "roll", "append")),
    Bug("209 a dead build is forgotten with its objects", (
        Edit("streamlog.bucket.collecting",
             "            deleted += self._remove_build(name)\n", "            pass\n"),
    ), CRASHING_STORE, ("append batches", TROUBLE, "roll")),
    Bug("210 garbage is forgotten before it is deleted", (
        Edit("streamlog.bucket.collecting",
             "            self._store.delete(keys)\n            deleted += len(keys)\n",
             "            deleted += len(keys)\n"),
        Edit("streamlog.bucket.collecting",
             "            self._journal.change(decide)\n\n    def _due",
             "            self._journal.change(decide)\n            self._store.delete(keys)\n"
             "\n    def _due"),
    ), CRASHING_STORE, ("append batches", "roll", "append batches", "roll", TROUBLE, "retire")),
    Bug("211 a raised log start drops the stretch that contains it", (
        Edit("streamlog.bucket.state",
             "        first = self.at(offset)\n        gone",
             "        first = self.at(offset) + 1\n        gone"),
    ), CRASHING_STORE, ("append batches", "append", TROUBLE, "delete records")),
    Bug("212 compaction swaps in nothing", (
        Edit("streamlog.maintenance.bucket_compaction",
             "            if segment.size:  # no record", "            if False:  # no record"),
    ), CRASHING_STORE, ("append batches", "append batches", "roll", "append", TROUBLE, "clean")),
    Bug("213 the journal is trimmed beyond its last snapshot", (
        Edit("streamlog.bucket.collecting",
             "        start = old[-1].number\n", "        start = state.number\n"),
        Edit("streamlog.bucket.collecting",
             "        if self._store.stat(snapshot_key(start)) is None:", "        if False:"),
    ), CRASHING_STORE, ("append", "append", "append", "append", "append", "append", "append",
                        "append", "append", "append", "append", "append", TROUBLE, "append",
                        "append")),
    Bug("214 a late commit names a deleted object", (
        Edit("streamlog.bucket.commits",
             "(staged_ms(key) or 0) < state.staged_horizon_ms\n", "False\n"),
        Edit("streamlog.bucket.state",
             "            if time_ms is None or time_ms < self._horizon_ms:\n",
             "            if time_ms is None:\n"),
    ), "pytest", ("tests/maintenance/test_bucket_maintenance.py"
                  "::test_orphans_are_collected_and_their_late_commit_is_refused",)),
    Bug("215 a writer that slept takes the number of a deleted entry", (
        Edit("streamlog.bucket.journal",
             "        if self._was_silent() and not self._is_in_place(number):\n",
             "        if False:\n"),
    ), "pytest", ("tests/maintenance/test_bucket_maintenance.py"
                  "::test_a_writer_that_slept_between_its_look_and_its_entry_notices",)),
    Bug("216 objects go while a recorded reader needs them", (
        Edit("streamlog.bucket.collecting",
             "(seen is None or each.number <= seen)", "True"),
    ), "pytest", ("tests/maintenance/test_bucket_maintenance.py"
                  "::test_recorded_readers_keep_records_and_objects",)),
    Bug("62 opened objects stay open", (
        Edit("streamlog.fs.open_files",
             "                    is_kept = not keeper.release_file()\n",
             "                    is_kept = False\n"),
    ), "pytest", ("tests/partition/test_open_files.py",)),
)

WITHOUT_A_BUG: Final = {  # of the protocol; its simulation seeds them
    "21": "truncation by high watermark: `python -m tests.programs.replication.simulation "
    "--bug truncate-by-hw`",
    "23": "election of an empty replica: `python -m tests.programs.replication.simulation "
    "--bug empty-replica-elected`",
}
NO_BUG: Final = "no bug"
FAKE: Final = Bug("00 an append writes nothing", (
    Edit(LOCAL_LOG, "            active.append(buffer, table)\n", "            pass\n"),
), "crashes", ("append",))
# fmt: on
