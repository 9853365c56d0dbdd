"""The jobs of the demo: each is importable (`build`), a script, and runs under `spark-submit`."""
