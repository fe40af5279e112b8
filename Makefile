# gresize: `make` or `make help` is the menu.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

BUILD ?= build
comma := ,
GO ?= go
export GRESIZE_CACHE ?= /var/cache/gresize

# The environments of the tests, and the one of them that the demo runs in.
DEMO_TORCH := 2.6.0
TEST_TORCH := 2.6.0 2.11.0
TEST_JAX := 0.10.2
NIGHTLY_JAX := 0.4.38
NIGHTLY_TORCH := 2.1.2 2.3.1 2.9.1 2.15.0

# The releases of Slurm that are tested beside the one of this machine, each in a folder with its Debian: the newest and one in the middle for
# every change. GRESIZE_SLURM_SOURCE, a git directory with Slurm's tags, gives those that no Debian has. What cannot be had is said, and skipped.
TEST_SLURM := slurm-24.11 slurm-26.05
NIGHTLY_SLURM := $(addprefix slurm-,20.11 22.05 23.02 23.11 24.05 25.05 25.11)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOSEC := github.com/securego/gosec/v2/cmd/gosec@v2.22.10
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2

# From 1.21 on, Go fetches the release that go.mod wants; a distribution may have told it not to. `tools/setup go` says so where it cannot.
export GOTOOLCHAIN ?= auto

# Go refuses to stamp a revision where git refuses to read the folder (another owner, no git). The version is the one that packages get.
GO_BUILD := $(GO) build -v -trimpath -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
GO_LINK := -X github.com/gresize/gresize/internal/buildinfo.stamped=$(shell packaging/version)

# gresize and gresized hold the log's SQLite, which is C. Linked with all of the C library that they need, they run on every Linux of their architecture,
# however old its own is. Where there is no libc.a they are linked as usual, and need a C library like the one here.
GO_STATIC := $(if $(filter /%,$(shell $(or $(CC),cc) -print-file-name=libc.a)),-linkmode external -extldflags -static)

.PHONY: help
help: ## This menu
	@echo "gresize: the GPU that a job needs instead of the GPU that was guessed"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- use

.PHONY: demo
demo: need-go setup-slurm build ## A real three-node Slurm on this machine and four jobs that get another GPU
	@tools/setup torch $(DEMO_TORCH)
	@tools/own-root ./examples/demo/run

.PHONY: tour
tour: need-go setup-slurm build ## Install, shadow, report, enforce, a death, a learnt margin, a card too small: the way of a site, on this machine in a few minutes
	@tools/setup torch $(DEMO_TORCH)
	@tools/own-root ./examples/tour/run

.PHONY: build
build: need-go ## The programs, the virtual GPU and the plugin, in build/
	@mkdir -p $(BUILD)
	@flock $(BUILD)/.lock $(MAKE) build-programs build-man build-vgpu build-plugin
	@echo "built: gresize and gresized in $(BUILD)/bin, what they start in $(BUILD)/libexec, the virtual GPU in $(BUILD)/lib, the plugin in $(BUILD)/plugin"
	@echo "next: $(BUILD)/bin/gresize estimate -- python train.py, \`make demo\` for a Slurm on this machine, or \`make install\`"

.PHONY: setup
setup: need-go setup-slurm ## Install what demo and test need (they call it themselves; offline when all is there)
	@tools/setup torch $(TEST_TORCH)
	@tools/setup jax $(TEST_JAX)
	@tools/setup ninja
	@tools/setup $(TEST_SLURM)

# --- work on it

.PHONY: test
test: setup build ## Everything tested, with real Slurm daemons and real PyTorch wheels
	@echo "test: the results come package by package, the first after some minutes; cmd/gresize, e2e and estimator/vgpu take longest"
	@tools/own-root $(GO) test -p 2 -timeout $(TEST_TIMEOUT) ./...

# What hangs is ended so; how long a sound package takes, the load of the machine decides.
TEST_TIMEOUT ?= 80m

.PHONY: lint
lint: ## gofmt, clang-format, vet, staticcheck, gosec, known vulnerabilities, GCC's analyzer, the laws of the house, shell and Python syntax
	@lint/run "$(STATICCHECK)" "$(GOSEC)" "$(GOVULNCHECK)"

.PHONY: bench
bench: setup build ## The benchmarks, those through a real sbatch included
	@tools/own-root $(GO) test -p 1 -timeout 30m -run '^$$' -bench . -benchmem ./...

.PHONY: nightly
nightly: export GRESIZE_NIGHTLY := 1
nightly: setup build ## What takes too long for every change: more PyTorch releases, races, ten minutes of chaos, planted bugs, each fuzz target for FUZZ_SECONDS
	@tools/setup torch $(NIGHTLY_TORCH)
	@tools/setup jax $(NIGHTLY_JAX)
	@tools/setup triton $(TEST_TORCH)
	@tools/setup $(NIGHTLY_SLURM) clean-root container-host container-image
	@tools/setup vm
	@tools/setup browser
	@tools/setup recipes
	@tools/setup prometheus
	@tools/setup journald
	@GRESIZE_SLURM_RELEASE="$(TEST_SLURM:slurm-%=%)" tools/own-root $(GO) test -p 1 -race -timeout 90m ./...
	@PYTHONPATH="$$(tools/accuracy/overlay 2.11.0 lightning scikit-learn)" tools/own-root $(GO) test -timeout 60m -run '^TestCasesOfLibraries$$' ./estimator/vgpu
	@tools/slurmroot/releases
	@GRESIZE_DIFFERENTIAL_EVENTS=10000000 tools/own-root $(GO) test -p 1 -timeout 10h -run Differential -v ./estimator/allocator/replay
	@tools/own-root ./examples/tour/run
	@lint/fuzz "$(FUZZ_SECONDS)"
	@tools/own-root lint/mutants
	@lint/planted

FUZZ_SECONDS ?= 60

.PHONY: chaos
chaos: ## A real gresized under faults that one seed makes, judged by a checker that shares no code with it (CHAOS_SEED, CHAOS_SECONDS)
	@CHAOS_SECONDS="$(CHAOS_SECONDS)" $(GO) test -count=1 -v -timeout 60m -run '^TestChaos$$' ./e2e

CHAOS_SECONDS ?= 60

.PHONY: eval-small
eval-small: setup build ## Every estimator on fifteen runs that others measured on real GPUs, with the error of each
	@rm -f $(BUILD)/eval-small.csv
	@NICENESS=0 tools/own-root tools/accuracy/evaluate small --workers 2 --timeout 90s -o $(BUILD)/eval-small.csv

.PHONY: install
install: ## Put what `make build` made under PREFIX (/usr), below DESTDIR; nothing is started
	@test -x $(BUILD)/libexec/gresize-estimator || { echo "install: nothing is built; run make build" >&2; exit 1; }
	@packaging/install "$(BUILD)" "$(DESTDIR)" "$(PREFIX)"
	@if [ -n "$(SLURM_PLUGIN_DIR)" ]; then install -D -m 755 -t "$(DESTDIR)$(SLURM_PLUGIN_DIR)" $(BUILD)/plugin/*.so && echo "installed: gresize below $(DESTDIR)$(PREFIX), the plugin in $(DESTDIR)$(SLURM_PLUGIN_DIR)"; \
	else echo "installed: gresize below $(DESTDIR)$(PREFIX); no job_submit plugin: SLURM_PLUGIN_DIR=DIR, with the folder of Slurm's own, installs it"; fi
	@echo "next: gresize slurm check, then the table in /etc/gresize/gresize.toml: docs/install.md"

.PHONY: packages
packages: build build-plugins ## deb and rpm in build/packages/: gresize, and the plugin for each release of Slurm on this machine
	@packaging/make-packages "$(abspath $(BUILD))" "$(abspath $(BUILD))/packages" "$(NFPM)"
	@echo "next: on the controller apt-get install ./gresize_*.deb ./gresize-slurm-plugin-RELEASE_*.deb (or the rpm), with the release of its Slurm; then docs/install.md"

.PHONY: wheel
wheel: build ## A wheel in build/packages/ for one person: pip install build/packages/gresize-*.whl, then gresize estimate -- python train.py
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)} packaging/make-wheel "$(BUILD)" "$(BUILD)/packages" "$$(packaging/version)"

PREFIX ?= /usr

.PHONY: changelog
changelog: ## What has changed since the last version, joined from changelog/unreleased; VERSION=0.2.0 makes a version of it
	@tools/changelog $(VERSION)

.PHONY: clean
clean: ## Remove build/ (the cache in GRESIZE_CACHE stays)
	rm -rf "$(BUILD)"

# --- parts, one at a time: `make build` holds a lock, for two that build at once would take each other's files away

.PHONY: need-go setup-slurm build-programs build-man build-vgpu build-plugin
need-go:
	@GO="$(GO)" tools/setup go

setup-slurm:
	@tools/setup slurm

# The programs that run on compute nodes and as root need no C library.
build-programs:
	@mkdir -p $(BUILD)/bin $(BUILD)/libexec $(BUILD)/lib
	@tools/telling "build: compiling gresize and gresized (the first time with all of Go's library and SQLite)" \
		$(GO_BUILD) $(if $(GO_STATIC),-tags netgo$(comma)osusergo$(comma)sqlite_omit_load_extension) -ldflags "$(GO_LINK) $(GO_STATIC)" -o $(BUILD)/bin/ ./cmd/gresize ./cmd/gresized
	@CGO_ENABLED=0 tools/telling "build: compiling what runs on nodes" $(GO_BUILD) -ldflags "$(GO_LINK)" -o $(BUILD)/libexec/ ./cmd/gresize-probe ./cmd/gresize-launch ./cmd/gresize-epilog ./cmd/gresize-estimator
	@CGO_ENABLED=0 $(GO_BUILD) -ldflags "$(GO_LINK) -X main.stage=$(PREFIX)/libexec/gresize/gresize-probe" -o $(BUILD)/libexec/ ./cmd/gresize-sandbox
	@rm -rf $(BUILD)/lib/profiles && mkdir -p $(BUILD)/lib/profiles
	@cp estimator/gpu/profiles/*.json $(BUILD)/lib/profiles/

# What the programs say of themselves, as pages of man.
build-man:
	@rm -rf $(BUILD)/man
	@$(GO) run -buildvcs=false ./tools/manpage $(BUILD)/bin/gresize docs/configuration.md $(BUILD)/man

build-vgpu:
	@$(MAKE) -s -C estimator/vgpu OUT="$(abspath $(BUILD))/lib"

# One plugin for each release whose headers are here, in folders that say for which: build/plugin/slurm-24.11.5/job_submit_gresize.so.
.PHONY: build-plugins
build-plugins: ## The plugin for every release of Slurm on this machine, in build/plugin/slurm-RELEASE/
	@for include in /usr/include "$$GRESIZE_CACHE"/slurm-*/usr/include; do \
		[ -e "$$include/slurm/slurm.h" ] || continue; \
		release=$$($(MAKE) -s -C slurm/plugin release SLURM_INCLUDE="$${include#/usr/include}") && \
		$(MAKE) -s -C slurm/plugin SLURM_INCLUDE="$${include#/usr/include}" OUT="$(abspath $(BUILD))/plugin/slurm-$$release" && \
		echo "$(BUILD)/plugin/slurm-$$release/job_submit_gresize.so" || exit 1; \
	done

# Without Slurm's headers all the rest still serves one person.
build-plugin:
	@if [ -e /usr/include/slurm/slurm.h ] || [ -n "$$SLURM_PREFIX" ]; then \
		$(MAKE) -s -C slurm/plugin OUT="$(abspath $(BUILD))/plugin"; \
	else \
		echo "build: no headers of Slurm (libslurm-dev), so no plugin"; \
	fi
