# Two commands are all that a newcomer needs:
#   make demo    build, record the built-in example, print three reports
#   make test    everything: Go with -race, C, Python, interop; installs what it needs
# Needed: Go 1.25 or later, a C compiler, python3.

SHELL     := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON    ?= python3
GO        ?= go
VENV      := .venv
DEMO      := .build/demo.gpurec
GOFLAGS_V := -trimpath
# go-nvml declares functions that newer NVML headers call deprecated; we call none of them.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
# go-nvml finds its functions when they are first called; some compilers bind at start unless told.
export CGO_LDFLAGS := -O2 -g -Wl,-z,lazy

.PHONY: build hook pythons generate demo test test-go test-stacks test-c test-python test-evidence test-interop test-browser test-torture test-aarch64 cross check clean torture fuzz

build: hook
	$(GO) build $(GOFLAGS_V) -o bin/gpurec ./cmd/gpurec
	CGO_ENABLED=0 $(GO) build $(GOFLAGS_V) -o bin/gpuanalyze ./cmd/gpuanalyze

# The hook and the simulated GPU, compiled and then embedded in gpurec, so that
# the binary needs no compiler where it runs.
hook:
	$(GO) run ./cuda/internal/build

generate:
	$(GO) generate ./format

demo: build
	rm -rf $(DEMO)
	@mkdir -p .build
	bin/gpurec demo -o $(DEMO)
	bin/gpuanalyze lines --at peak $(DEMO)
	bin/gpuanalyze contexts $(DEMO)
	bin/gpuanalyze devices $(DEMO)

test: build check test-go test-c test-python test-evidence test-torture cross test-interop test-browser
	@echo "make test: all green but for what is said to be skipped above"

check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-clean: $$out"; exit 1; }
	$(GO) vet ./...
	cd benchmarks && $(GO) vet . && $(GO) test .

# CPythons newer than this machine's, for the tests of stacks.
pythons:
	.ci/pythons

# The race detector makes the damage tests slow, so they run in full without it.
test-go: hook pythons
	$(GO) test -race -json ./... | $(PYTHON) .ci/gotest.py
	$(GO) test -json -run 'Flip|Cut|EveryOperation' ./format | $(PYTHON) .ci/gotest.py

# Python's frames at length: so many code objects made and dropped, and a 200th of
# that of programs made of all shapes of frames, from SEED, on each CPython.
#   make test-stacks STACKS=1000000 SEED=7
STACKS ?= 100000
test-stacks: hook pythons
	GPUREC_STACKS_COUNT=$(STACKS) GPUREC_STACKS_SEED=$(SEED) $(GO) test -count=1 -v -timeout 0 -run 'TestPythonStacks' ./cuda | grep -v '^=== '

# The simulated GPU's own test, and the programs of testdata/programs on it.
test-c:
	cuda/hook/fake/test/run.sh

# The Python package on each CPython that there is, two at a time, and the comparer
# of the H200's evidence.
test-python: build pythons
	@printf '%s\n' 3.9 3.10 3.11 3.12 3.13 3.14 3.15 | xargs -P 2 -n 1 .ci/test-python
	$(PYTHON) -m unittest discover -s testdata/h200

# Parts as they lie, and exports, in the tools that people open them with; the
# Python package as pip installs it, and as a type checker sees it.
test-interop: build $(VENV)/ok
	cd cuda/python && $(CURDIR)/$(VENV)/bin/mypy --cache-dir $(CURDIR)/.build/mypy
	$(VENV)/bin/python analyze/export/interop/test_interop.py bin/gpuanalyze
	$(VENV)/bin/python cuda/python/tests/test_trace.py
	$(VENV)/bin/python -m unittest discover -s cuda/python/tests/interop
	$(VENV)/bin/python analyze/export/interop/test_duckdb.py bin/gpuanalyze
	$(VENV)/bin/python analyze/export/interop/test_viewers.py bin/gpuanalyze
	$(VENV)/bin/python recorder/metrics/test_prometheus.py bin

# The report's pages in a headless Chromium, which root gets by apt where there
# is none. Where it cannot be had the tests say that they are skipped.
# -shots FOLDER writes screenshots.
test-browser:
	@if ! command -v chromium chromium-browser google-chrome >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== installing Chromium"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null \
			|| echo "Chromium could not be installed"; \
	fi
	$(GO) test -json -count=1 -run Browser ./analyze/report -browser | { $(PYTHON) .ci/gotest.py || [ -z "$$(command -v chromium chromium-browser google-chrome)" ]; }

# The evidence from the H200 again: an independent fold in Python against the
# numbers that PyTorch, CuPy and the driver printed in the same runs.
test-evidence: build
	@mkdir -p .build
	@for pair in torch:train torch:steps cupy:cupy flavours:flavours; do \
		name=$${pair#*:}; \
		bin/gpuanalyze events -q testdata/h200/$$name.gpurec > .build/$$name.txt; \
		$(PYTHON) testdata/h200/compare.py $${pair%:*} .build/$$name.txt testdata/h200/$$name.jsonl > .build/$$name.table; \
		echo "$$name: $$(tail -n 2 .build/$$name.table | head -n 1), against what $${pair%:*} printed on the H200"; \
	done

# Kills, fills, forks, freezes and damages at random, from SEED, and checks what
# the recording then owes. A failed round says how to run it again.
#   make torture DURATION=10m
#   make torture ROUNDS=1000 KINDS=program,gpurec SEED=1
DURATION ?= 60s
ROUNDS   ?= 0
ROUND    ?= -1
SEED     ?= 0
KINDS    ?=
torture: build
	$(GO) run ./cmd/internal/torture -duration $(DURATION) -rounds $(ROUNDS) -round $(ROUND) -seed $(SEED) -kinds "$(KINDS)"

# A taste of it: a few rounds of each kind.
test-torture: build
	$(GO) run ./cmd/internal/torture -rounds 20 -seed $(SEED)

# Every fuzz target that there is, one after the other. Where there is a file
# system in memory their files are there: most of them write some. Left to itself, Go
# takes a minute to make each find smaller: of three minutes 26 inputs were run.
FUZZTIME ?= 1m
fuzz: export TMPDIR := $(if $(wildcard /dev/shm/.),/dev/shm,$(TMPDIR))
fuzz: hook
	@git ls-files -co --exclude-standard '*_test.go' | xargs grep -H '^func Fuzz' | sed 's/:func \(Fuzz[A-Za-z0-9_]*\).*/ \1/' | sort | while read file name; do \
		echo "== $$(dirname $$file) $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./$$(dirname $$file); \
	done

# The hook's tests as aarch64's, by an emulator: some minutes.
test-aarch64: hook
	.ci/aarch64

# gpuanalyze runs where there is no GPU and no C library of ours; the hook on aarch64 too.
cross:
	for os in linux darwin windows; do CGO_ENABLED=0 GOOS=$$os $(GO) build -o /dev/null ./cmd/gpuanalyze; done
	.ci/aarch64 compile

$(VENV)/ok: analyze/export/interop/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf bin .build $(VENV)

.PHONY: bench bench-gpu-kit

# The tables of benchmarks/, on this machine: under ten minutes. Keep what is
# worth keeping: cp .build/bench.txt benchmarks/results/DATE-MACHINE.txt
bench: build
	@mkdir -p .build
	cd benchmarks && $(GO) build $(GOFLAGS_V) -o ../.build/benchmarks/run .
	.build/benchmarks/run -o .build/bench.txt

# A folder for a GPU machine with neither Go nor make: .build/gpu-kit/run there.
bench-gpu-kit: build
	benchmarks/gpu/kit.sh .build/gpu-kit
