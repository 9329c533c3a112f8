# `make` lists the targets. `make test` needs Go alone; `make check` is what CI runs.

GO       ?= go
# `make fuzz` runs the fuzz tests whose names match, each so long, and ends a test whose memory exceeds so many MB. An hour for the decoders of
# what is not trusted: FUZZTIME=10m FUZZ='FuzzDecode$$|FuzzReader|FuzzDecodeIndex|FuzzLocalState|FuzzDecodeState|FuzzParse' make fuzz
FUZZTIME   ?= 20s
FUZZ       ?= .
FUZZMEMORY ?= 1024
# How many packages, and how many tests of each, run at a time: most tests wait most of the time.
PACKAGES ?= 4
PARALLEL ?= 4
# They take the longest, and so they begin first.
LONGEST  := ./cmd/sluice ./events ./syncer ./processor ./internal/node ./sandbox/docker
FLAKES_RUNS ?= 20
# Each seed of `make chaos` runs this long, on one server and on three: CHAOS_SECONDS=600 CHAOS_SEEDS="1 2 3" make chaos
CHAOS_SECONDS ?= 60
CHAOS_SEEDS   ?= 1 2 3
# How long the documented load goes on, and in which sandboxes: LOAD_SECONDS=600 LOAD_PROVIDER=docker make load
LOAD_SECONDS  ?= 120
LOAD_PROVIDER ?= auto
RCLONE   := v1.75.1
TARGETS  := linux/amd64 linux/arm64 darwin/arm64
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Only flags of the linker: `go run`, `make build` and `make test` share the build cache.
LDFLAGS   = -s -w -X main.version=$(VERSION)
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint

# The steps of check, in this order: fast steps and likely failures first.
CHECKS := tidy-check generate-check lint vet cross supervisor test e2e

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build static test attack e2e flakes bench bench-sync load chaos fuzz lint fmt vet tidy tidy-check generate generate-check cross supervisor check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/sluice for this machine, from the build cache of `go run` and `make test`
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/sluice

static: ## build bin/sluice without cgo and local paths, to copy to other machines
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/sluice

test: ## run the tests; needs Go alone. RACE=on: under the race detector, in random order (needs a C compiler)
	$(GO) test $(if $(RACE),-race -shuffle=on) -timeout 25m -p $(PACKAGES) -parallel $(PARALLEL) $(LONGEST) ./...

attack: ## attack jails and containers from inside, load attacks included (jails run as the calling user)
	@table=$$(mktemp); SLUICE_ATTACK=1 SLUICE_ATTACK_TABLE=$$table $(GO) test -count=1 -p 1 -timeout 20m -run '^TestAttack$$' ./sandbox/...; status=$$?; \
		echo; sort -s -k1,1 $$table; awk '{ n++; if (/ BROKEN /) broken++ } END { printf "%d cases, %d broken\n", n, broken }' $$table; rm $$table; exit $$status

e2e: ## walk through the README, run sync against real S3 servers (moto too with SLUICE_MOTO=path), and the example in another language (needs node and npm)
	.ci/readme
	cd syncer/e2e && $(GO) test ./...
	@if ! command -v npm >/dev/null; then \
		echo "e2e: npm is missing; install it: apt-get install nodejs npm"; [ -z "$$CI" ]; \
	else \
		$(MAKE) --no-print-directory build && cd examples/node && npm ci --no-audit --no-fund && npm test; \
	fi

flakes: ## run the tests FLAKES_RUNS (20) times in random order, several runs at once (an hour or two)
	.ci/flakes $(FLAKES_RUNS)

bench: ## measure against a baseline taken in the same run: BENCH <name> <value> <goal> <ok|short>
	$(GO) run ./cmd/bench

bench-sync: ## measure sync against rclone, and against s5cmd with S5CMD=path, in the same run (builds rclone: minutes)
	GOBIN=$(CURDIR)/.tools/bin $(GO) install github.com/rclone/rclone@$(RCLONE)
	$(MAKE) --no-print-directory build
	cd syncer/e2e && $(GO) run ./bench -sluice $(CURDIR)/bin/sluice -rclone $(CURDIR)/.tools/bin/rclone -s5cmd "$(S5CMD)"

load: build ## the documented load over HTTP on `sluice up`, for LOAD_SECONDS (120): p50 and p99, and no error
	$(GO) run ./cmd/load -sluice bin/sluice -provider $(LOAD_PROVIDER) -duration $(LOAD_SECONDS)s

chaos: ## the long tests: kills at random moments, many writers, faulty stores; then cells under attack, by seed (Linux)
	SLUICE_LONG=1 $(GO) test -count=1 -timeout 60m -run '^(TestEveryProcessSurvivesItsWorker|TestAKilledWorkers.*|TestAFrozenWorker.*|TestAConversationGoesOnElsewhere|TestAFullDiskUnder.*|TestConformance|TestMany.*)$$' ./client ./cmd/sluice ./sandbox/pool ./processor
	SLUICE_CHAOS=1 $(GO) test -count=1 -timeout 60m ./syncer
	cd syncer/e2e && SLUICE_CHAOS=1 $(GO) test -count=1 -timeout 180m ./...
	$(GO) build -o bin/ ./cmd/sluice ./cmd/chaos
	@failed=; for servers in 1 3; do for seed in $(CHAOS_SEEDS); do \
		bin/chaos -sluice bin/sluice -servers $$servers -seed $$seed -duration $(CHAOS_SECONDS)s || failed="$$failed $$servers/$$seed"; \
	done; done; if [ -n "$$failed" ]; then echo "chaos: violations with servers/seed:$$failed"; exit 1; fi

fuzz: ## run each fuzz test that matches FUZZ for FUZZTIME (20s), in at most FUZZMEMORY MB (1024; Linux)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | grep -v node_modules | grep -E '$(FUZZ)' | while IFS=: read -r file name; do \
		echo "== $${name#func } in $$(dirname $$file)"; \
		$(GO) test -run '^$$' -fuzz "^$${name#func }$$" -fuzztime $(FUZZTIME) -exec '$(CURDIR)/.ci/in-memory $(FUZZMEMORY)' "$$(dirname $$file)" || exit 1; \
	done

lint: ## run the linters (the first run builds them: a minute or two)
	$(LINT) run

fmt: ## format the code
	$(LINT) fmt

vet: # for darwin, tests included: the linters vet this system
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...

generate: ## regenerate the generated files
	$(GO) generate ./...

tidy: ## regenerate go.mod and go.sum
	$(GO) mod tidy
	cd tools && $(GO) mod tidy
	cd syncer/e2e && $(GO) mod tidy

check: export RACE = on
check: ## everything that CI runs: tidy, generate, lint, vet, cross, supervisor, test with RACE=on, e2e
	@for step in $(CHECKS); do \
		echo "== $$step"; start=$$(date +%s); \
		$(MAKE) --no-print-directory $$step || exit 1; \
		echo "== $$step: ok, $$(( $$(date +%s) - start )) s"; \
	done

cross: ## build without cgo for linux/amd64, linux/arm64 and darwin/arm64, and the Go SDK for windows
	@for target in $(TARGETS); do \
		echo "build $$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build -o /dev/null ./... || exit 1; \
	done
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build ./client

clean: ## remove what was built
	rm -rf bin dist coverage.out

tidy-check:
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd syncer/e2e && $(GO) mod tidy -diff

generate-check:
	.ci/no-diff $(GO) generate ./...

supervisor: # check that the checked-in supervisors are what their source builds, bit for bit
	sandbox/supervisor/build.sh --check
