"""A commit that an earlier release made under the bare `txnAppId` is not repeated."""

import pytest

from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import OnMismatch, ReplayRule, Verdict
from streamlog.errors import CommitMismatchError
from streamlog.query.checkpoint import BatchSource, Naming
from tests.support.commits import Scene, rows_of

OLD = "etl"
ROWS_NAME_TOPICS = None


def old_commit(scene: Scene, version: int, *topics: str) -> None:
    """Commit as an earlier release did: under the bare name, whatever the topics."""
    for topic in topics:
        if topic != "t":
            scene.manager.create_topic(topic, 1, if_not_exists=True)
    staged = [
        scene.stage(version, {0: rows_of(version, 0, OLD)}, app=OLD, topic=topic, task=task)
        for task, topic in enumerate(topics)
    ]
    scene.commit(version, staged, app=OLD, replay_rule=ReplayRule.GREATER, fingerprint="same")


def commit(scene: Scene, version: int, topic: str | None, **how: object) -> CommitOutcome:
    """Commit as this release does: the target is part of the name."""
    identity = CommitIdentity.of(txn_app_id=OLD, query_id=None, topic=topic, version=version)
    staged = scene.stage(
        version, {0: rows_of(version, 0, OLD)}, app=identity.app, topic=topic or "t"
    )
    lines = str(how.pop("fingerprint", "same"))
    source = BatchSource(lines, naming=Naming.BATCH)
    return scene.commits.commit(identity, [staged], source=source, **how)  # type: ignore[arg-type]


@pytest.fixture(params=[False, True], ids=["decided", "retired"])
def old(request: pytest.FixtureRequest) -> Scene:
    """Versions 0 and 1 are committed under the bare name, in topic `t` only."""
    scene = Scene()
    old_commit(scene, 0, "t")
    old_commit(scene, 1, "t")
    if request.param:
        scene.commits.retire()
    return scene


@pytest.mark.parametrize("topic", ["t", ROWS_NAME_TOPICS])
@pytest.mark.parametrize("version", [0, 1])
def test_what_stands_under_the_bare_name_is_a_replay(
    old: Scene, topic: str | None, version: int
) -> None:
    before = old.values(0)

    outcome = commit(old, version, topic)

    assert (outcome.verdict, outcome.rows) == (Verdict.REPLAY, 6)
    assert old.values(0) == before


def test_the_next_version_follows_the_last_one_under_the_bare_name(old: Scene) -> None:
    with pytest.raises(CommitMismatchError, match="does not follow"):
        commit(old, 3, "t")
    assert commit(old, 2, "t").verdict is Verdict.COMMIT
    assert commit(old, 3, "t").verdict is Verdict.COMMIT
    with pytest.raises(CommitMismatchError, match="older than the versions kept"):
        commit(old, 1, "t")  # a past of its own counts alone


def test_other_rows_than_those_under_the_bare_name_stop_loudly(old: Scene) -> None:
    with pytest.raises(CommitMismatchError, match="already committed with other rows"):
        commit(old, 1, "t", fingerprint="other")
    appended = commit(old, 1, "t", fingerprint="other", on_mismatch=OnMismatch.APPEND)
    assert (appended.verdict, appended.revision) == (Verdict.APPEND, 1)


def test_another_target_has_no_part_in_the_bare_names_past(old: Scene) -> None:
    old.manager.create_topic("u", 1)

    assert commit(old, 1, "u").verdict is Verdict.COMMIT


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_version_whose_topics_are_not_remembered_stops_loudly(is_retired: bool) -> None:
    scene = Scene()
    for version, topic in enumerate(["t", "u", "t"]):
        old_commit(scene, version, topic)
    if is_retired:
        scene.commits.retire()
    before = scene.values(0)

    assert commit(scene, 2, "t").verdict is Verdict.REPLAY  # the last one's offsets are kept
    with pytest.raises(CommitMismatchError, match="older than the versions kept"):
        commit(scene, 2, "u")
    if is_retired:
        with pytest.raises(CommitMismatchError, match="older than the versions kept"):
            commit(scene, 0, "t")
    else:
        assert commit(scene, 0, "t").verdict is Verdict.REPLAY
    assert scene.values(0) == before


def test_the_names_of_writer_and_target_cannot_be_confused() -> None:
    def app(writer: str, topic: str | None) -> str:
        return CommitIdentity.of(txn_app_id=writer, query_id="q", topic=topic, version=0).app

    assert len({app("a", "b"), app("a", None), app("a/b", None), app("a/b", "c")}) == 4
