"""Jobs that really run: each is importable (`build`), a script, and works under `spark-submit`."""
