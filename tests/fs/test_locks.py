"""The promises of every file system about locks."""

from tests.support.place import Place


def test_an_exclusive_lock_excludes_every_other_handle(place: Place) -> None:
    path = place.path("lock")
    held = place.fs.try_lock(path, shared=False)
    assert held is not None
    assert held.is_mine()
    assert (held.path, held.shared) == (path, False)
    assert place.fs.try_lock(path, shared=False) is None
    assert place.fs.try_lock(path, shared=True) is None
    held.release()
    held.release()
    assert not held.is_mine()
    again = place.fs.try_lock(path, shared=True)
    assert again is not None
    again.release()


def test_shared_locks_admit_each_other_and_nothing_else(place: Place) -> None:
    path = place.path("lock")
    first = place.fs.try_lock(path, shared=True)
    second = place.fs.try_lock(path, shared=True)
    assert first is not None
    assert second is not None
    assert place.fs.try_lock(path, shared=False) is None
    first.release()
    assert place.fs.try_lock(path, shared=False) is None
    second.release()
    alone = place.fs.try_lock(path, shared=False)
    assert alone is not None
    alone.release()


def test_a_paused_lock_is_free_for_others_and_can_be_resumed(place: Place) -> None:
    path = place.path("lock")
    lock = place.fs.try_lock(path, shared=False)
    assert lock is not None
    lock.pause()
    assert not lock.is_mine()
    other = place.fs.try_lock(path, shared=False)
    assert other is not None
    assert not lock.resume()
    assert not lock.is_mine()
    other.release()
    assert lock.resume()
    assert lock.is_mine()
    assert place.fs.try_lock(path, shared=True) is None
    lock.file.pwrite(b"still open", 0)
    lock.release()
    again = place.fs.try_lock(path, shared=False)
    assert again is not None
    again.release()


def test_a_paused_lock_whose_file_was_replaced_is_not_resumed(place: Place) -> None:
    path = place.path("lock")
    lock = place.fs.try_lock(path, shared=False)
    assert lock is not None
    lock.pause()
    place.fs.remove(path)
    assert not lock.resume()
    other = place.fs.try_lock(path, shared=False)
    assert other is not None
    assert not lock.resume()
    lock.release()
    assert other.is_mine()
    other.release()


def test_releasing_a_paused_lock_does_not_affect_its_next_holder(place: Place) -> None:
    path = place.path("lock")
    lock = place.fs.try_lock(path, shared=False)
    assert lock is not None
    lock.pause()
    other = place.fs.try_lock(path, shared=False)
    assert other is not None
    lock.release()
    assert place.fs.try_lock(path, shared=False) is None
    other.release()


def test_the_holder_reads_and_writes_the_lock_file_and_others_read_it(place: Place) -> None:
    lock = place.fs.try_lock(place.path("lock"), shared=False)
    assert lock is not None
    lock.file.pwrite(b"holder", 0)
    assert lock.file.pread(6, 0) == b"holder"
    assert place.read("lock") == b"holder"
    lock.release()


def test_a_removed_lock_file_does_not_admit_two_holders_of_one_name(place: Place) -> None:
    path = place.path("lock")
    old = place.fs.try_lock(path, shared=False)
    place.fs.remove(path)
    new = place.fs.try_lock(path, shared=False)
    assert old is not None
    assert new is not None
    assert place.fs.try_lock(path, shared=False) is None
    old.release()
    assert place.fs.try_lock(path, shared=False) is None
    new.release()


def test_broker_lock_of_a_missing_or_unlocked_file_is_not_held(place: Place) -> None:
    assert not place.fs.broker_lock_is_held(place.path("missing"))
    assert not place.fs.broker_lock_is_held(place.write(".lock", b""))
    lock = place.fs.try_lock(place.path(".lock"), shared=False)
    assert lock is not None
    assert not place.fs.broker_lock_is_held(place.path(".lock")), "a flock is another kind"
    lock.release()


def test_boot_id_is_constant_while_the_machine_is_up(place: Place) -> None:
    assert place.fs.boot_id()
    assert place.fs.boot_id() == place.fs.boot_id()
