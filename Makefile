# Every target sets up what it needs. `make demo` and `make test` are the two commands of the README.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Byte code is kept, also where the environment says otherwise: two fifths of a short command would be compiling.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: apptainer demo test test-fast test-snakemake test-kubernetes test-nova test-stores test-boinc test-outage takeovers failovers double-faults chaos campaigns faults fuzz stream stream-ec2 recall replays calibration check bench docs screens system format clean

$(STAMP): pyproject.toml tools/setup.sh
	@sh tools/setup.sh $(PYTHON) $(VENV)
	@touch $(STAMP)

system:
	@sh tools/system.sh

# Debian 12 has no Apptainer: that of Debian unstable is kept in ~/.cache/windfall/apptainer. Tests do without it.
apptainer:
	@timeout 300 sh tools/apptainer.sh >/dev/null 2>&1 || echo "tests of Apptainer will be skipped; sh tools/apptainer.sh says why"

demo: $(STAMP)
	@$(BIN)/windfall demo
	@$(BIN)/windfall demo deadline

# A test that hangs fails after ten minutes instead of keeping all others waiting; none takes a tenth of that. Many tests
# wait for processes: three at a time keep two cores busy.
test: system apptainer $(STAMP) check
	$(BIN)/python -m pytest tests -n 3 --dist loadfile --no-loadscope-reorder -q --timeout 600

test-fast: $(STAMP)
	$(BIN)/python -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder -q -m "not slow"

# The plug-in of Snakemake against the real one, which gets an environment of its own; `make test` has it, too, but
# for the suite without shared files, on an S3.
test-snakemake: $(STAMP)
	WINDFALL_TEST_SNAKEMAKE_S3=1 $(BIN)/python -m pytest tests/e2e/jobs/test_snakemake.py -q --timeout 600

# Against a real control plane. Building it takes ten minutes, once: it is kept in ~/.cache/windfall/kubernetes, or
# where WINDFALL_KUBERNETES says.
test-kubernetes: $(STAMP)
	@sh tools/kubernetes.sh >/dev/null
	@$(BIN)/python -c 'import kubernetes' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[kubernetes,ec2]'
	WINDFALL_TEST_KUBERNETES=1 $(BIN)/python -m pytest tests/contract tests/e2e/pools -q -m kubernetes

# Against a real OpenStack Nova with fake computes. Installing it takes some minutes, once: it is kept in
# ~/.cache/windfall/nova, or where WINDFALL_NOVA says.
test-nova: $(STAMP)
	@sh tools/nova.sh >/dev/null
	@$(BIN)/python -c 'import openstack' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[openstack]'
	WINDFALL_TEST_NOVA=1 $(BIN)/python -m pytest tests/contract tests/e2e/pools -q -m nova

# Files of jobs, inputs and outputs in s3://, gs:// and az://. Azurite is installed once by npm, in
# ~/.cache/windfall/azurite or where WINDFALL_AZURITE says; without it `make test` skips az://.
test-stores: $(STAMP)
	@sh tools/azurite.sh
	$(BIN)/python -m pytest tests/contract/test_store_blobs.py tests/e2e/jobs/test_stores.py \
		tests/e2e/jobs/test_other_stores.py tests/e2e/server/test_object_blobs.py -q --timeout 600

# Two minutes without the server, over a link of 300 ms: `make test` has the short version.
test-outage: $(STAMP)
	$(BIN)/python -m tests.e2e.worker.outage 120

# Campaigns against real processes, several seeds at once because they mostly wait. FROM=21 SEEDS=4 runs other seeds;
# every seed that passes adds a row to build/campaigns.jsonl, and `make campaigns` adds all rows up.
FROM ?= 1

# 200 take-overs of servers on PostgreSQL: `make test` has two.
takeovers: $(STAMP)
	$(BIN)/python -m tests.e2e.server.takeovers 10 --from-seed $(FROM) --seeds $(or $(SEEDS),20) --at-once 4

# A long task that checkpoints moves from on-demand to spot, live on the emulated cloud: two minutes.
recall: $(STAMP)
	$(BIN)/python -m tests.e2e.clouds.recall

# 20 fail-overs of the database itself to its synchronous standby: `make test` has one.
failovers: $(STAMP)
	$(BIN)/python -m tests.e2e.server.failovers 5 --from-seed $(FROM) --seeds $(or $(SEEDS),4) --at-once 2

# Server and database fail at once, 20 times: `make test` has one.
double-faults: $(STAMP)
	$(BIN)/python -m tests.e2e.server.double_faults 4 --from-seed $(FROM) --seeds $(or $(SEEDS),5) --at-once 2

# 1,000 faults, half against servers on SQLite and half on PostgreSQL: killed and stopped servers and workers, a cut
# network, a full disk, a read-only one, a database that crashes or is cut off. `make test` has 17.
chaos: $(STAMP)
	$(BIN)/python -m tests.e2e.server.chaos 50 --from-seed $(FROM) --seeds $(or $(SEEDS),20) --at-once 4

campaigns: $(STAMP)
	@$(BIN)/python -m tests.support.server.campaigns

# 200 workflows and bags in ten minutes through a fleet of the emulated cloud, two servers killed: `make test` has 15.
stream: $(STAMP)
	$(BIN)/python -m tests.e2e.clouds.stream 200 600

# The same through EC2's API, answered by moto.
stream-ec2: $(STAMP)
	$(BIN)/python -m tests.e2e.clouds.stream 200 600 ec2

# 12 live runs in the emulated cloud, replayed: about eight minutes, mostly waiting. `make test` has one.
replays: $(STAMP)
	$(BIN)/python -m tests.e2e.clouds.replays 3

# Everything that is read (files, bodies of requests, stored records), fuzzed with atheris, a minute each. `make test`
# reads the kept inputs again, and mutations of them.
fuzz: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check atheris
	$(BIN)/python -m tests.fuzz.run $(or $(SECONDS),60)

# 10,000 whole servers in virtual time with crashes, torn writes and a bad network, 13 minutes of a core: `make test`
# has 120. A seed that fails is printed with the command that runs it again.
faults: $(STAMP)
	$(BIN)/python -m tests.simulation.server.faults 1 10000

# The real client of volunteers, and ten times as many mutated messages as `make test` sends.
test-boinc: system $(STAMP)
	WINDFALL_BOINC_MUTATIONS=10000 $(BIN)/python -m pytest tests/unit/boinc tests/e2e/pools/test_boinc.py tests/e2e/pools/test_boinc_protocol.py \
		tests/e2e/pools/test_boinc_attacks.py tests/e2e/pools/test_boinc_howto.py -q

# Promises against what happens in 2,000 random worlds: about an hour of a core. `make test` has a few.
calibration: $(STAMP)
	$(BIN)/windfall simulate calibration --random 500 --true-runs 4

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/windfall bench all

# Checks the pages, records the console again, then builds the site (build/site) and the manual pages (build/man).
docs: $(STAMP)
	$(BIN)/python tools/docs.py
	@mkdir -p build/npm && cd build/npm && { test -e package/dist/mermaid.min.js || { npm pack --silent mermaid@11 >/dev/null \
		&& tar xzf mermaid-11.*.tgz package/dist/mermaid.min.js; }; } || echo "npm is missing: diagrams stay text"
	@command -v chromium >/dev/null && $(BIN)/python tools/console_shots.py || echo "the screenshots stay as they are: chromium is missing, or see above"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python tools/man.py build/man

# Records the screens of the terminal; needs tmux and chromium.
screens: $(STAMP)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tools/screens.py

clean:
	rm -rf $(VENV) $(VENV)-snakemake build dist .mypy_cache .ruff_cache .import_linter_cache
