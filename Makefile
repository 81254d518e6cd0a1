# The addresses of the servers come from stackctl. Ports are not fixed, so several checkouts can work on one machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help

STACKCTL := go run ./internal/tools/stack/stackctl
# Sets the addresses in the shell of a recipe. Without a stack the recipe fails with stackctl's message.
WITH_STACK := env="$$($(STACKCTL) env)" && eval "$$env"

# Flags of `make demo`, for example DEMO_FLAGS="--help".
DEMO_FLAGS ?=
# Flags and packages of `make test`, for example TEST_FLAGS="-run Acquire ./lockcore/...".
TEST_FLAGS ?= ./...
# Flags of `make fuzz-sagas` and `make fuzz-sagas-mixed`, for example FUZZ_FLAGS="-for 2m".
FUZZ_FLAGS ?=
# Flags of `make rollout`, for example ROLLOUT_FLAGS="-dir /tmp".
ROLLOUT_FLAGS ?=
# Flags of `make chaos`, `make chaos-controls` and `make soak`, for example CHAOS_FLAGS="-for 30s -markdown".
CHAOS_FLAGS ?=
# Flags of `make bench`, `make bench-hot`, `make bench-scale` and `make bench-contended`, for example BENCH_FLAGS="--rounds 1000".
BENCH_FLAGS ?=
# Flags of `make compare`, for example COMPARE_FLAGS="-only redislock,etcd -markdown".
COMPARE_FLAGS ?=
# Flags of `make follow`, for example FOLLOW_FLAGS=-v.
FOLLOW_FLAGS ?=
# The commit to compare with in `make bench`, `make bench-hot` and `make bench-contended`, for example AGAINST=HEAD~1. Without it there
# is no comparison.
AGAINST ?=
# Runs the benchmark $(2), or compares its results with those of AGAINST by $(1).
BENCH = $(if $(AGAINST),go run ./internal/tools/bench/against $(1) "$(AGAINST)",go run $(2)) $(BENCH_FLAGS)

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: stack-up
stack-up: ## start a Temporal server and a MongoDB, or repair the running ones (docs/stack.md)
	@$(STACKCTL) up

.PHONY: stack-down
stack-down: ## end the servers of stack-up; data remains
	@$(STACKCTL) down

.PHONY: stack-status
stack-status: ## show the servers, their addresses, health and logs
	@$(STACKCTL) status

.PHONY: stack-env
stack-env: ## print the addresses: eval "$(make -s stack-env)"
	@$(STACKCTL) env

.PHONY: demo
demo: stack-up ## see sagas wait, commit, compensate and crash (DEMO_FLAGS="...")
	@$(WITH_STACK) && exec go run ./cmd/lockstep demo $(DEMO_FLAGS)

.PHONY: image
image: IMAGE_ARCH ?= $(shell go env GOARCH)
image: CA_FILE ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
image: ## build a container image of the command (IMAGE=lockstep:dev IMAGE_ARCH=arm64 CA_FILE=roots.pem)
	@mkdir -p bin/image/bin
	@GOOS=linux GOARCH=$(IMAGE_ARCH) CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o bin/image/linux/$(IMAGE_ARCH)/lockstep ./cmd/lockstep
	@cp LICENSE bin/image/bin/ && cp "$(CA_FILE)" bin/image/bin/ca-certificates.crt
	@.ci/licenses >bin/image/bin/THIRD_PARTY_NOTICES
	@docker build --quiet --build-arg TARGETPLATFORM=linux/$(IMAGE_ARCH) --platform linux/$(IMAGE_ARCH) --tag $(or $(IMAGE),lockstep:dev) --file Dockerfile bin/image

.PHONY: test
test: stack-up ## run all tests against real servers, with the race detector (TEST_FLAGS="./lockcore/...")
	@$(WITH_STACK) && exec go test -race -timeout 30m $(TEST_FLAGS)

.PHONY: simulate
simulate: ## simulate whole Lockers (SEEDS=20000 FROM=1), and random histories of one document (HISTORIES=60000 HISTORY_SEED=1)
	@go test -count=1 -timeout 12h ./internal/engine/rules -run TestInvariants -rapid.checks $(or $(HISTORIES),3000) -rapid.seed $(or $(HISTORY_SEED),0)
	@exec go test -count=1 -timeout 12h ./internal/proof/simulation -seeds $(or $(SEEDS),2000) -from $(or $(FROM),1)

.PHONY: explore
explore: ## explore all interleavings of three parties on one resource (DEPTH=1: one action deeper than by default)
	@exec go test -count=1 -v -timeout 12h ./internal/engine/update -run TestExplore -deeper $(or $(DEPTH),0)

.PHONY: explore-mutants
explore-mutants: ## show which mutants of the rules and the update loop the exploration finds, in half an hour
	@exec go test -count=1 -v -timeout 12h ./internal/engine/update -run TestMutants -mutants -parallel 2

.PHONY: fuzz-sagas
fuzz-sagas: stack-up ## run random sagas on the servers and kill their workers (SEED=1 RUNS=10)
	@$(WITH_STACK) && exec go run ./internal/proof/sagafuzz -seed $(or $(SEED),1) -runs $(or $(RUNS),10) $(FUZZ_FLAGS)

.PHONY: fuzz-sagas-mixed
fuzz-sagas-mixed: stack-up ## the same, with half of the workers from an earlier commit (SEED=1 RUNS=10)
	@.ci/previous sagafuzz bin/sagafuzz-previous
	@$(WITH_STACK) && exec go run ./internal/proof/sagafuzz -previous bin/sagafuzz-previous -seed $(or $(SEED),1) -runs $(or $(RUNS),10) $(FUZZ_FLAGS)

.PHONY: rollout
rollout: stack-up ## set the first policy while workers of an earlier commit run: they are refused, and nothing is lost
	@.ci/previous rollout bin/rollout-previous
	@go build -o bin/lockstep ./cmd/lockstep
	@$(WITH_STACK) && exec go run ./internal/proof/rollout -previous bin/rollout-previous -lockstep bin/lockstep $(ROLLOUT_FLAGS)

.PHONY: chaos
chaos: ## disturb clients, workers, servers and connections, on servers of its own (SEED=1 RUNS=1 CHAOS_FLAGS="-v")
	@exec go run ./internal/proof/chaos -seed $(or $(SEED),1) -runs $(or $(RUNS),1) $(CHAOS_FLAGS)

.PHONY: chaos-controls
chaos-controls: ## show that each kind of fault in `make chaos` finds a defect that was put in on purpose
	@exec go run ./internal/proof/chaos -controls $(CHAOS_FLAGS)

.PHONY: defects
defects: stack-up ## try commands of internal/tools/defects: ten rows, one (ROW=12), or all (ALL=1); SEED=7 repeats a draw
	@$(WITH_STACK) && exec go run ./internal/tools/defects $(if $(ROW),-row $(ROW)) $(if $(ALL),-all) $(if $(SEED),-seed $(SEED))

.PHONY: soak
soak: ## play one long seed of `make chaos`, and show that no process uses more and more memory (LONG=30m CHAOS_FLAGS="-dir /tmp")
	@exec go run ./internal/proof/chaos -soak $(or $(LONG),30m) $(CHAOS_FLAGS)

.PHONY: bench
bench: stack-up ## compare operations with raw commands (AGAINST=commit compares two builds, BENCH_FLAGS="--rounds 1000")
	@$(WITH_STACK) && exec $(call BENCH,engine,./internal/tools/bench engine)

.PHONY: bench-hot
bench-hot: stack-up ## compare guards, sagas and locks with a mutex workflow, on few resources and on many (AGAINST=commit, BENCH_FLAGS="--turns 1")
	@$(WITH_STACK) && exec $(call BENCH,hot,./internal/tools/bench hot)

.PHONY: bench-scale
bench-scale: stack-up ## measure more and more resources, clients, waiters and idle documents (BENCH_FLAGS="--short")
	@$(WITH_STACK) && exec go run ./internal/tools/bench scale $(BENCH_FLAGS)

.PHONY: bench-contended
bench-contended: stack-up ## measure many Lockers on one resource (AGAINST=commit, BENCH_FLAGS="--write-delay 12ms")
	@$(WITH_STACK) && exec $(call BENCH,contended,./internal/tools/bench/contended)

.PHONY: compare
compare: stack-up ## compare with other locks, in ten minutes; installs Redis, etcd, PostgreSQL from Debian (COMPARE_FLAGS="-short")
	@$(WITH_STACK) && exec go run -C internal/tools/compare . $(COMPARE_FLAGS)

.PHONY: follow
follow: ## count the files, functions and lines that four calls pass through (FOLLOW_FLAGS=-v lists them)
	@exec go run ./internal/tools/follow $(FOLLOW_FLAGS)

.PHONY: histories
histories: stack-up ## record the histories of unreleased features again (worker/testdata/histories)
	@$(WITH_STACK) && exec go test -count=1 -run '^TestReplay_RecordedHistories_Match$$' ./worker -record all

.PHONY: lint
lint: ## run the linters and the checks of formatting (CONTRIBUTING.md)
	@bash .ci/run gofmt lint workflowcheck noskips

.PHONY: fmt
fmt: ## format all Go files
	@gofmt -w .

.PHONY: ci
ci: ## run all checks of continuous integration
	@bash .ci/run
