# Every target sets itself up: a fresh machine needs make and Python 3.11 or newer, nothing else.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

# Without stored bytecode each process compiles what it imports: a second for a broker, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run check check-core check-logs check-simulation check-telemetry check-cli check-clients check-brokers check-handlers check-nodes check-replicas test test-core test-simulation test-scenarios test-brokers test-nodes test-cli test-guides test-clients test-interop test-pipeline test-conformance lint format docs bench profile fuzz hostile fuzz-authentication fuzz-authentication-long security-matrix security-tools sim mutants chaos alarms differential share-errors share-tools disasters exactly-once ecosystem standalone test-spark-next conformance conformance-secured clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Stands for an environment with the packages of pyproject.toml, by their hashes.
$(READY): pyproject.toml hashes.txt hashes-build.txt
	@$(PYTHON) -m tools.environment $(VENV)
	@touch $@

# The tools that build the site of the documentation, apart from the packages of the project.
DOCS_READY := $(VENV)/docs/.ready
SITE := NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/python -m mkdocs build --strict --config-file build/docs/mkdocs.yml

$(DOCS_READY): hashes-docs.txt
	@$(PYTHON) -m tools.environment $(VENV)/docs hashes-docs.txt
	@touch $@

run: $(READY) ## the whole product, live: brokers, simulated GPUs, Spark, API (FOR=90 ends with a summary)
	@$(PY) -m penstock telemetry demo $(if $(FOR),--for $(FOR)) $(if $(DATA),--data $(DATA)) $(ARGS)

# Parts of the tests. Those that start other processes wait for them much of the time, so four share two cores well.
# `make test` starts the longest ones first. Parts that only compute run beside them and take the rest of the cores:
# no time passes in a simulation while it waits for one.
BESIDE := nice -n 5
SCENARIO_TESTS := tests/testing/simulation/test_scenario.py
SIMULATION_TESTS := tests/testing/simulation
# They wait for elections, timeouts and restarts most of the time; the rest of the broker's tests run beside them.
NODE_TESTS := $(patsubst %,tests/broker/%,node healing links replica)
BROKER_TESTS := tests/broker
CLI_TESTS := tests/cli tests/docs
CLIENT_TESTS := tests/client tests/examples $(wildcard tests/testing/test_*.py)
INTEROP_TESTS := tests/interop tests/lab tests/chaos tests/disasters
# They compare with Apache Kafka, which one part starts once.
KAFKA_TESTS := tests/client/test_survival.py tests/broker/produce/test_poison.py tests/broker/links/test_apache_kafka.py tests/docs/test_migration.py
# They use the clients and servers of other systems.
BRIDGE_TESTS := tests/bridge
GUIDE_TESTS := $(patsubst %,tests/docs/test_migration_%.py,nats rabbitmq sns sqs)
PIPELINE_TESTS := tests/spark tests/jobs tests/tables tests/telemetry $(KAFKA_TESTS)
CONSOLE_TESTS := tests/console
PARTS := $(SIMULATION_TESTS) $(BROKER_TESTS) $(CLI_TESTS) $(CLIENT_TESTS) $(INTEROP_TESTS) $(PIPELINE_TESTS) $(CONSOLE_TESTS) $(BRIDGE_TESTS)

check: $(READY) ## lint, and every fast test without child processes and Spark
	@$(MAKE) --no-print-directory --jobs=11 --keep-going --output-sync=line check-clients check-simulation check-telemetry check-cli check-brokers check-handlers check-nodes check-replicas check-core check-logs lint

# The longest parts start first.
FAST_CLI_TESTS := tests/cli tests/docs
FAST_CLIENT_TESTS := tests/client tests/examples $(wildcard tests/testing/test_*.py)

FAST_LOG_TESTS := tests/storage tests/records tests/raft tests/replication

check-core: $(READY)
	$(PY) -m pytest -q --fast $(patsubst %,--ignore=%,tests/broker tests/spark tests/jobs tests/tables tests/interop $(FAST_LOG_TESTS) $(FAST_CLI_TESTS) $(FAST_CLIENT_TESTS) tests/telemetry tests/testing)

check-logs: $(READY)
	$(BESIDE) $(PY) -m pytest -q --fast $(FAST_LOG_TESTS)

check-simulation: $(READY)
	$(BESIDE) $(PY) -m pytest -q --fast $(SIMULATION_TESTS)

check-telemetry: $(READY)
	$(PY) -m pytest -q --fast tests/jobs tests/tables tests/telemetry

check-cli: $(READY)
	$(PY) -m pytest -q --fast $(FAST_CLI_TESTS)

check-clients: $(READY)
	$(PY) -m pytest -q --fast $(FAST_CLIENT_TESTS)

# Most of their time they wait for elections, timeouts and restarts, so they share a core.
check-brokers: $(READY)
	$(PY) -m pytest -q --fast tests/broker $(patsubst %,--ignore=tests/broker/%,handlers request authorization node replica healing)

check-handlers: $(READY)
	$(PY) -m pytest -q --fast $(patsubst %,tests/broker/%,handlers request authorization)

check-nodes: $(READY)
	$(PY) -m pytest -q --fast tests/broker/node

check-replicas: $(READY)
	$(PY) -m pytest -q --fast tests/broker/replica tests/broker/healing

# The first two need no environment: they run while it is made.
test: ## everything that must hold: lint, tests, and other people's tests (fifteen minutes on two cores)
	@echo "six parts run at once, the longest ones first; each reports when it is done"
	@rm -f .skipped .failed
	@PENSTOCK_SKIPPED=$(CURDIR)/.skipped PENSTOCK_FAILED=$(CURDIR)/.failed $(MAKE) --no-print-directory --jobs=6 --keep-going --output-sync=line test-librdkafka test-chromium test-pipeline test-core test-nodes test-brokers test-cli test-interop test-simulation test-pages test-clients test-scenarios test-conformance test-guides lint; \
		status=$$?; $(PYTHON) -m tools.unstable .failed || status=1; $(PYTHON) -m tools.skipped .skipped; exit $$status

.PHONY: test-tools
test-tools: $(READY) ## install what skipped tests need, as far as this machine allows: packages as root, the lab's builds
	@$(PYTHON) -m tools.test_tools
	@$(PYTHON) -m lab.librdkafka
	@$(PY) -m lab.guide_servers > /dev/null
	-@$(PY) -m lab.helm

test-core: $(READY) ## tests of everything below the broker, and of the tools around it
	$(PY) -m pytest -q $(patsubst %,--ignore=%,$(PARTS))

test-simulation: $(READY) ## tests of the simulator, and of brokers without a guard in it
	$(BESIDE) $(PY) -m pytest -q --timeout 1200 $(SIMULATION_TESTS) --ignore=$(SCENARIO_TESTS)

test-scenarios: $(READY) ## the simulated seeds that run with every test
	$(BESIDE) $(PY) -m pytest -q --timeout 1200 $(SCENARIO_TESTS)

test-brokers: $(READY) ## tests of the broker without those of test-nodes
	$(PY) -m pytest -q $(BROKER_TESTS) $(patsubst %,--ignore=%,$(NODE_TESTS) $(KAFKA_TESTS))

test-nodes: $(READY) ## tests of clusters: quorum, healing, links, replication
	$(PY) -m pytest -q $(NODE_TESTS) $(patsubst %,--ignore=%,$(KAFKA_TESTS))

# The tools of the site are no prerequisite: with one, this part would start when all others have.
test-cli: $(READY) ## tests of the command line and the documentation
	@$(MAKE) --no-print-directory test-site-tools
	$(PY) -m pytest -q $(CLI_TESTS) $(patsubst %,--ignore=%,$(KAFKA_TESTS) $(GUIDE_TESTS))

test-guides: $(READY) ## bridges and migration guides against NATS, RabbitMQ and moto, if they install within seconds
	"$$($(PY) -m lab.guide_servers)" -m pytest -q $(BRIDGE_TESTS) $(GUIDE_TESTS)

test-clients: $(READY) ## tests of our clients, and of brokers and clusters for tests
	$(PY) -m pytest -q $(CLIENT_TESTS) $(patsubst %,--ignore=%,$(KAFKA_TESTS))

test-interop: $(READY) ## other people's clients, chaos and disasters on brokers as processes
	$(PY) -m pytest -q $(INTEROP_TESTS)

test-pipeline: $(READY) ## tests of the Spark connector and the telemetry pipeline
	$(PY) -m pytest -q $(PIPELINE_TESTS)

.PHONY: test-chromium test-librdkafka test-pages test-console console-cost fleet-start screenshots
test-chromium:
	@$(PYTHON) -m tools.chromium

test-librdkafka:
	@$(PYTHON) -m lab.librdkafka

test-pages: $(READY) test-chromium ## tests of the web console, in a Chromium if there is one
	$(PY) -m pytest -q $(CONSOLE_TESTS)

test-console: $(READY) test-chromium ## the same, with 10,000 topics, large messages, Apache Kafka and the cost of open pages
	CONSOLE=all $(PY) -m pytest -q $(CONSOLE_TESTS)

console-cost: $(READY) ## what ten open consoles cost a cluster of three brokers (on a quiet machine)
	@$(PY) -m tools.console_cost

fleet-start: $(READY) ## seconds from `make run` to live data on the page of the GPU fleet (on a quiet machine)
	@$(PY) -m tools.fleet_start

screenshots: docs ## pictures of the web console and the site in docs/, and of the site on other screens in build/docs/screenshots
	@$(PY) -m tools.site_screenshots
	@$(PY) -m tools.screenshots

test-conformance: $(READY) test-librdkafka ## a part of other people's tests
	$(PY) -m conformance --subset

lint: $(READY) ## style, types, import contracts, commit subjects
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(BESIDE) $(PY) -m mypy
	$(BESIDE) $(VENV)/bin/lint-imports
	$(PY) -m tools.commit_subjects

.PHONY: audit
audit: $(READY) ## known vulnerabilities (from an offline copy of the advisory database) and licences of the dependencies
	$(PY) -m tools.audit

.PHONY: sbom
sbom: $(READY) ## a software bill of materials of the pinned packages, as CycloneDX: `make sbom > sbom.json`
	@$(PY) -m tools.sbom

format: $(READY) ## put the code into shape
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(READY) $(DOCS_READY) ## render the pages that come from code, and build the site in build/docs/site; warnings are errors
	$(PY) -m docs.render
	$(PY) -m docs.site
	$(SITE)

.PHONY: release newcomer
release: $(READY) ## the distribution of the last commit in dist/: wheels (penstock-mq, penstock-mq-client), sources, SBOM, checksums; the same bytes each time
	@rm -rf dist
	@$(PY) -m tools.release dist

newcomer: release ## the first five minutes: the wheel in a fresh environment, the README's blocks in order; docs/newcomer.md
	$(PY) -m tools.newcomer dist

.PHONY: image
image: $(READY) ## the container image as an OCI archive in build/image, without a registry (ARGS=--measure: start a broker on it, as root)
	@$(PY) -m tools.image --revision "$$(git rev-parse HEAD)" $(ARGS)

.PHONY: kubernetes
kubernetes: $(READY) ## the chart on a real Kubernetes that it builds and runs here, as root: roll, kill, drain, lose a zone, scale, restore (UNTIL=drain, KUBECONFIG=…)
	$(PY) -m kubernetes_rehearsal $(if $(UNTIL),--until $(UNTIL)) $(ARGS)

.PHONY: roll
roll: $(READY) ## roll three brokers under load: 0.1.0 and the last version, this one, back, and this one again (MIXED=120 seconds between)
	ROLL=all ROLL_MIXED_S=$(or $(MIXED),60) $(PY) -m pytest -q --timeout 3000 tests/rolling

.PHONY: pages test-site-tools
pages: $(READY) ## render the pages that come from code, without the site
	$(PY) -m docs.render

# The tests of the site are skipped where its tools cannot be installed; the list of skipped tests then says so.
test-site-tools: $(READY)
	@$(MAKE) --no-print-directory $(DOCS_READY) || echo "the tools of the documentation's site cannot be installed: the tests of the site are skipped"

bench: $(READY) ## measure (ROWS=… for a part, QUICK=1, AGAINST=kafka)
	ROWS='$(ROWS)' QUICK='$(QUICK)' AGAINST='$(AGAINST)' $(PY) -m bench

.PHONY: compare cores-cost
compare: $(READY) ## measure beside Kafka, NATS, RabbitMQ and Valkey (QUICK=1, CLASSES='cache synced semantics', ROWS=…, ONLY=…)
	QUICK='$(QUICK)' ROUNDS='$(ROUNDS)' CLASSES='$(CLASSES)' ROWS='$(ROWS)' ONLY='$(ONLY)' NOTE='$(NOTE)' RENDER='$(RENDER)' $(PY) -m bench.compare

cores-cost: $(READY) ## the cost of many brokers on a machine, and throughput by brokers in cgroups (QUICK=1, ROWS='cost limited'; needs root)
	QUICK='$(QUICK)' ROUNDS='$(ROUNDS)' ROWS='$(ROWS)' NOTE='$(NOTE)' RENDER='$(RENDER)' $(PY) -m bench.cores

.PHONY: scale
scale: $(READY) ## measure the controller with up to a million partitions on paper, in minutes, and write docs/scaling.md (SIZES='10000 200000', BROKERS='6000', RESULTS=file.json)
	SIZES='$(SIZES)' BROKERS='$(BROKERS)' RESULTS='$(RESULTS)' $(PY) -m bench.scale

fuzz: $(READY) ## throw garbage at a broker for a minute (SECONDS=…, SEED=…)
	$(PY) -m tests.broker.fuzz $(or $(SECONDS),60) $(SEED)

hostile: $(READY) ## clients that try to stall a broker, and to grow its metrics and memory (NAMES=100000, SIZE=20000, APIS=…, SECONDS=60, BUSY=1 on a busy machine)
	$(PY) -m tests.broker.monitoring.hostile $(or $(NAMES),100000)
	$(PY) -m tests.hostile.memory
	$(PY) -m tests.broker.fuzz $(or $(SECONDS),60) $(SEED)
	$(PY) -m tests.broker.authentication_fuzz $(or $(SECONDS),60) $(SEED)
	$(PY) -m tests.hostile --largest $(or $(SIZE),20000) $(if $(APIS),--apis $(APIS)) $(if $(BUSY),--steps)

fuzz-authentication: $(READY) ## attack secured listeners before authentication for a minute (SECONDS=…, SEED=…)
	$(PY) -m tests.broker.authentication_fuzz $(or $(SECONDS),60) $(SEED)

fuzz-authentication-long: $(READY) ## the same for ten minutes
	$(PY) -m tests.broker.authentication_fuzz 600 $(SEED)

security-matrix: $(READY) ## wrong clients of every mechanism against Penstock and Apache Kafka, and docs/security-matrix.md
	$(PY) -m differential.negative

security-tools: $(READY) ## Kafka's tools for ACLs, passwords, quotas and tokens against secured Penstock and Apache Kafka
	nice -n 5 $(PY) -m differential.secured_tools

sim: $(READY) ## simulate disasters (SEEDS=…, SEED=… for the first, BROKERS=3, SECONDS=… for long runs, OPERATED=1, DISASTERS=1, TRANSACTIONS=1, SHARES=1, ARCHIVED=1, SECURED=1)
	$(PY) -m penstock.testing.simulation --seed $(or $(SEED),0) --seeds $(or $(SEEDS),200) --brokers $(or $(BROKERS),3) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OPERATED),--operated) $(if $(DISASTERS),--disasters) $(if $(TRANSACTIONS),--transactions) $(if $(SHARES),--shares) $(if $(ARCHIVED),--archived) $(if $(SECURED),--secured)

.PHONY: migration
migration: $(READY) ## run the migration guide between Apache Kafka and Penstock, there and back
	$(PY) -m pytest -q tests/docs/test_migration.py

.PHONY: links
links: $(READY) ## links between clusters: leaders that are killed, sources that misbehave, a move from Apache Kafka
	LINK_SEEDS=500 LINK_KILLS=$(or $(KILLS),30) $(PY) -m pytest -q tests/linking tests/broker/links

.PHONY: bridges
bridges: $(READY) ## the bridges and their guides against NATS, RabbitMQ, ElasticMQ and moto, with kills (KILL_ROUNDS=2, KILL_MESSAGES=2000)
	PENSTOCK_BRIDGES=1 "$$($(PY) -m lab.bridge_clients)" -m pytest -q --timeout 900 $(BRIDGE_TESTS) $(GUIDE_TESTS)

.PHONY: archive
archive: $(READY) ## the archive format, tiered storage, backups of Apache Kafka, and restores under load from a real S3 server, which it builds
	ARCHIVE_TESTS=1 $(PY) -m pytest -q --timeout 900 tests/archive tests/backup tests/objectstore tests/remote tests/tiering tests/broker/app/test_copies.py tests/broker/app/test_local_retention.py

.PHONY: vault
vault: $(READY) ## build Vault and install moto in the lab, and test the key providers with them
	PENSTOCK_KEY_SERVICES=1 $(PY) -m pytest -q --timeout 1800 tests/broker/base/test_key_providers.py

.PHONY: paper
paper: $(READY) ## check plans for up to 10 M messages/s of 10 KB on paper clusters
	PENSTOCK_PAPER=1 $(PY) -m pytest -q --timeout 1800 tests/planning/test_paper.py

mutants: $(READY) ## remove guards from the broker, one at a time, and see which seed misses each
	$(PY) -m tests.testing.simulation.mutants $(GUARDS)

chaos: $(READY) ## kill, stop and cut off real brokers under real clients (SECONDS=…, SEED=…, BROKERS=…, SECURED=1, MEMBERS='queue java …', or QUEUES=1 KILLS=… IN_TURN=1)
	$(PY) -m chaos $(if $(QUEUES),--queues $(if $(KILLS),--kills $(KILLS)) $(if $(IN_TURN),--in-turn)) --seconds $(or $(SECONDS),60) --brokers $(or $(BROKERS),3) $(if $(SEED),--seed $(SEED)) $(if $(SECURED),--secured) $(if $(MEMBERS),--members $(MEMBERS))

alarms: $(READY) ## cause faults on real brokers and see a real Prometheus fire each alert (ONLY='disk broker', or QUIET=3600: no fault, no alert)
	$(PY) -m alarms $(if $(ONLY),--only $(ONLY)) $(if $(QUIET),--quiet $(QUIET))

differential: $(READY) ## send the same random requests to Apache Kafka and compare the answers (SEED=…, SEEDS=…, ONLY=fetch,…)
	nice -n 5 $(PY) -m differential --seeds $(or $(SEEDS),10) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

share-errors: $(READY) ## bad input to share groups against Penstock and Apache Kafka (SEEDS=… random runs)
	$(PY) -m differential.shares --seeds $(or $(SEEDS),10)

share-tools: $(READY) ## run Kafka's share-group tools against Penstock and Apache Kafka, and compare their output
	nice -n 5 $(PY) -m differential.share_tools

.PHONY: cluster-tools
cluster-tools: $(READY) ## run Kafka's tools for elections, voters, pages of topics and client metrics against three nodes of each, and compare
	nice -n 5 $(PY) -m differential.cluster_tools

.PHONY: directory-tools
directory-tools: $(READY) ## run Kafka's tools for data directories against Penstock and Apache Kafka, and compare
	nice -n 5 $(PY) -m differential.directory_tools

disasters: $(READY) ## damage, roll back and swap real brokers' files and count what is lost (ONLY=…, AGAINST=kafka, AGAINST=penstock-encrypted)
	nice -n 5 $(PY) -m disasters $(if $(ONLY),--only $(ONLY)) $(if $(AGAINST),--against $(AGAINST)) --results docs/disasters/$(or $(AGAINST),penstock).json; \
		status=$$?; $(PY) -m disasters --publish && exit $$status

exactly-once: $(READY) ## kill workers and brokers of a copy, the pipeline's driver, all parts of the Spark sink, and count (KILLS=20, SEED=…)
	COPY_KEYS=0 COPY_MESSAGES=100000 COPY_BATCH=750 COPY_PACE_MS=0 COPY_KILLS=$(or $(KILLS),20) SEED=$(or $(SEED),1) $(PY) -m pytest -q tests/client/test_copy_job.py
	COPY_KEYS=1 COPY_MESSAGES=40000 COPY_BATCH=300 COPY_PACE_MS=0 COPY_KILLS=$(or $(KILLS),20) SEED=$(or $(SEED),1) $(PY) -m pytest -q tests/client/test_copy_job.py
	KILLS=$(or $(KILLS),20) SEED=$(or $(SEED),1) $(PY) -m pytest -q tests/telemetry/pipeline/test_exactly_once.py
	SINK_KILLS=$(or $(KILLS),30) SEED=$(or $(SEED),1) $(PY) -m pytest -q -s tests/spark/exactly_once/test_kills.py

ecosystem: $(READY) ## Kafka Streams and Kafka Connect, exactly once, each killed in the middle; kafka-transactions.sh beside Kafka
	ECOSYSTEM=1 $(PY) -m pytest -q tests/ecosystem

standalone: $(READY) ## the pipeline on a standalone Spark cluster: a killed worker, a packed environment
	STANDALONE=1 $(PY) -m pytest -q tests/telemetry/pipeline/test_cluster.py tests/telemetry/pipeline/test_packed_environment.py -k 'worker or packed'

.PHONY: tables
tables: $(READY) ## kill drivers, JVMs, executors and Python workers of `penstock table run`, and compare tables with topics (KILLS=…, SEED=…)
	TABLE_KILLS=$(or $(KILLS),6) SEED=$(or $(SEED),1) $(PY) -m pytest -q tests/tables/test_kills.py tests/tables/test_s3.py tests/tables/test_real_registry.py

.PHONY: deaths detectors
deaths: $(READY) ## kill Python processes and the JVM below the pipeline's commands
	DEATHS=1 $(PY) -m pytest -q tests/telemetry/pipeline/test_deaths.py

detectors: $(READY) ## recall and precision of alerts on held-out simulated fleets (HOSTS=250, SEEDS='101 102 …')
	$(PY) -m tests.telemetry.pipeline.detecting $(if $(HOSTS)$(SEEDS),$(or $(HOSTS),250) $(SEEDS))
	@$(PY) -m docs.measured

SPARK_VERSIONS := 4.0 4.1 4.2 4.3
.PHONY: spark-contract spark-sink
spark-contract: $(READY) ## what Spark tells the writers of a Python data source, on local, local-cluster and standalone of each version
	@for version in $(SPARK_VERSIONS); do test -d $(VENV)/sparks/$$version || \
		$(PY) -m pip install --quiet --disable-pip-version-check --target $(VENV)/sparks/$$version "pyspark==$$version.*" || exit 1; done
	SPARK_CONTRACT=$(VENV)/sparks $(PY) -m pytest -q tests/spark/exactly_once/test_contract.py

spark-sink: $(READY) ## the exactly-once sink in a Spark session: restarts, atomic batch writes, a driver that dies between two transactions
	SPARK_SINK=1 $(PY) -m pytest -q tests/spark/exactly_once

test-spark-next: $(READY) ## tests of the connector and the pipeline on a newer Spark than the pinned one (SPARK=4.3)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade --target $(VENV)/spark-next 'pyspark==$(or $(SPARK),4.3).*'
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-next $(PY) -m pytest -q tests/spark tests/jobs tests/tables tests/telemetry/pipeline

profile: $(READY) ## a flame graph of the broker under one row's load (ROW=produce-1k)
	ROW='$(ROW)' $(PY) -m bench.profile

conformance-secured: $(READY) ## librdkafka's tests over SASL_SSL with ACLs (ONLY='0081 0115')
	$(PY) -m conformance --secured --update $(ONLY)

conformance: $(READY) ## all of other people's tests, and the scoreboard in docs/conformance.md
	$(PY) -m conformance --update

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) .lab build dist penstock-data .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
