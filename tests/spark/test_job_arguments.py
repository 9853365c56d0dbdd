"""The jobs of `streaming_jobs/` refuse arguments with which they would fail later."""

from types import ModuleType

import pytest

from streaming_jobs import aircraft_state, carrier_delays, flights_to_topic

JOBS = {
    aircraft_state: [],
    carrier_delays: ["--output", "table"],
    flights_to_topic: ["--input", "flights"],
}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__.rpartition(".")[2])
def test_a_url_needs_a_checkpoint(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--path", "s3://bucket/root", *JOBS[job]]
    with pytest.raises(SystemExit):
        job.parse_arguments(arguments)
    assert "a log root in an object store needs --checkpoint" in capsys.readouterr().err
    assert job.parse_arguments([*arguments, "--checkpoint", "s3a://bucket/cp"]).checkpoint
    assert job.parse_arguments(["--path", "root", *JOBS[job]]).checkpoint is None
