# The two main commands are `make demo` and `make test`. Each sets up everything it needs, once, in
# .venv and .cache of this directory; see .ci/set-up. Works with GNU make from any path.

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench site dist pins clean

RUN = .ci/set-up $(1) && . .ci/environment && exec
IN_DEMO = @$(call RUN,demo)
IN_TEST = @$(call RUN,test)

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

demo: ## stream real data through the log, kill Spark in the middle, count the rows
	$(IN_DEMO) python -m streaming_jobs.demo $(ARGS)

test: ## run lint and every test, with the time of each part (ARGS="engine" for one part)
	$(IN_TEST) python -m tests.gate $(ARGS)

lint: ## run only ruff, mypy and the check of the import layers
	$(IN_TEST) python -m tests.gate lint

format: ## format the code and apply automatic fixes with ruff
	$(IN_TEST) sh -c 'ruff check --fix --quiet . && ruff format .'

bench: ## measure against the peers (ARGS="codec source --json")
	$(IN_TEST) python -m tests.performance $(ARGS)

site: ## build the documentation as a site, in .cache/site/html
	$(IN_TEST) python -m tests.programs.site

dist: ## build wheel and source archive, and try the wheel in a new environment
	$(IN_TEST) python -m tests.programs.distribution

PIN = uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-annotate --no-header

pins: ## resolve conf/requirements-*.txt again (needs uv)
	@for group in build dist kaskade matrix site stream-processors; do \
		$(PIN) --group $$group --output-file conf/requirements-$$group.txt; done
	@$(PIN) pyproject.toml --extra delta --group demo --output-file conf/requirements-demo.txt
	@$(PIN) pyproject.toml --extra delta --group test --constraint conf/requirements-demo.txt \
		--output-file conf/requirements-test.txt

clean: ## remove build and tool output; keep .venv and .cache/jars
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		.cache/demo spark-warehouse metastore_db derby.log artifacts
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
