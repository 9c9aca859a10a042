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

.PHONY: build hook generate demo test test-go test-c test-python test-interop cross check clean

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
	bin/gpuanalyze lines $(DEMO)
	bin/gpuanalyze contexts $(DEMO)
	bin/gpuanalyze devices $(DEMO)

test: build check test-go test-c test-python cross test-interop
	@echo "make test: all green"

check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-clean: $$out"; exit 1; }
	$(GO) vet ./...

test-go: hook
	$(GO) test -race ./...

# gpuanalyze runs where there is no GPU and no C library of ours.
cross:
	for os in linux darwin windows; do CGO_ENABLED=0 GOOS=$$os $(GO) build -o /dev/null ./cmd/gpuanalyze; done

$(VENV)/ok:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check pandas pyarrow polars duckdb
	touch $@

clean:
	rm -rf bin .build $(VENV)
