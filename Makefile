.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The modules whose code is ours. pkg/upjet and hack/upjet are tested in the trees of lines (line, upjet). The
# others pin programs, or stand in for one.
MODULES := . hack hack/adopt hack/compare hack/kubectl-graft hack/tutorial/alerts docs/examples/provider

# The packages that have goroutines of their own, or are used by several.
GOROUTINES := asyncstate crashtest internal/limit internal/seam internal/store managed/ratelimit reconciler watch

# The race detector needs a C compiler. Without one tests still run.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# The linters' cache names files by where they were first seen, so another
# checkout's is of no use.
export GOLANGCI_LINT_CACHE := $(CURDIR)/bin/lint-cache

# The release of crossplane-runtime whose line to write, and the version that it is
# to be released as.
RUNTIME ?= v2.2.1
LINE_VERSION ?=

# The versions of upjet to test with: releases, or an archive of its main branch.
UPJET ?= v2.3.0 v2.4.1
UPJET_TREE := $(CURDIR)/bin/line/upjet-

# The package whose mutants to test, further packages whose tests may kill them, how
# many mutants, and the seed that selects them.
PKG ?= ./pkg/internal/seam
ALSO ?=
N ?= 100
SEED ?= 1

# What to run of the benchmarks. The story to play. Further arguments.
BENCH ?= .
STORY ?=
ARGS ?=

.PHONY: help
help: ## Say what there is to make (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show each failure with upstream and with Graft (STORY=name to play one)
	@cd hack && go run ./demo -story "$(STORY)" $(ARGS)

# Lint vets all modules: govet is one of its linters.
#
# Tests of the other modules read files of this one. Go's cache of results does not notice when those change.
.PHONY: test
test: ## Run the unit tests of all modules
	@set -e; for m in $(MODULES); do \
		echo "go test ./... (in $$m)"; \
		(cd $$m && go test -vet=off $$([ $$m = . ] || echo -count=1) ./...); \
	done

.PHONY: race
race: detector ## Run the unit tests of the packages that have goroutines of their own with the race detector
	go test -vet=off $(RACE) $(addprefix ./pkg/,$(GOROUTINES))

.PHONY: integration
integration: detector controlplane ## Run the tests that need a real control plane (built once, 11 to 14 minutes)
	cd hack && go test -vet=off $(RACE) -tags integration -count=1 -p 1 -timeout 30m ./integration

.PHONY: cluster
cluster: ## Run a control plane until Ctrl-C, and print its kubeconfig (built once)
	@mkdir -p bin && cd hack && go build -o ../bin/controlplane ./internal/controlplane/cmd/controlplane
	@exec bin/controlplane run

.PHONY: tutorial
tutorial: detector controlplane ## Run the commands of docs/tutorial.md on a real control plane (needs kubectl)
	cd hack && go test $(RACE) -tags integration -count=1 -timeout 15m -v ./tutorial

.PHONY: churn
churn: detector controlplane ## Let kinds come and go on a real API server for minutes (GRAFT_WATCH_CHURN=2m)
	cd hack && go test $(RACE) -tags integration,churn -count=1 -timeout 15m -v -run TestWatchChurn ./integration

.PHONY: upstream
upstream: ## Run crossplane-runtime's own tests of its managed resource reconciler with Graft's, for each line, and compare 10,000 random steps
	cd hack && go test -tags upstream -count=1 -timeout 30m -v ./upstream
	$(MAKE) differential STEPS=10000

STEPS = 1000000

.PHONY: differential
differential: ## Compare random steps of upstream's reconciler and Graft's with its defaults (STEPS, by default a million: 40 minutes)
	GRAFT_DIFFERENTIAL_STEPS=$(STEPS) go test -count=1 -timeout 3h -v -run '^TestDifferential$$' ./pkg/managed

.PHONY: fork
fork: ## Do to a release of Crossplane what the documentation tells its forks to do
	cd hack && go test -tags fork -count=1 -timeout 30m -v ./fork

.PHONY: real
real: controlplane ## Run provider-sql on PostgreSQL without Graft and with it, and provider-kubernetes' own tests (up to an hour; GRAFT_POSTGRES=URL)
	cd hack && go test -tags real -count=1 -timeout 90m -v ./real

.PHONY: judge
judge: ## Search pkg/crashtest's planted faults with its default budget, and make 100,000 runs of providers that are right (10 minutes on two idle cores)
	go test -tags judge -count=1 -timeout 3h -v -run TestJudge ./pkg/crashtest

TORTURE = go test -tags torture -count=1 -timeout 6h -v -run '^TestTorture$$' ./torture -args

.PHONY: torture
torture: ## Crash a provider at every request, with upstream's reconciler and with Graft (ARGS='-sample 2000', or a pattern: ARGS='-test.run TestTorture/create/sync')
	@cd hack && $(TORTURE) $(ARGS)

.PHONY: torture-nightly
torture-nightly: ## Run torture with five random seeds, and fail if one of them does
	@cd hack && status=0; for seed in $$(od -An -N20 -tu4 /dev/urandom); do \
		echo "torture with -seed $$seed"; \
		$(TORTURE) -seed $$seed $(ARGS) || status=1; \
	done; exit $$status

# Each version of upjet is tested in a tree of the line for its crossplane-runtime. The tests wait most of the
# time, for shutdowns above all.
.PHONY: upjet
upjet: controlplane upjet-tree tools ## Kill a provider that upjet generated, without Graft and with it (UPJET=v2.4.1, or an archive of its main branch)
	@set -e; for u in $(UPJET); do \
		for m in pkg/upjet hack/upjet; do \
			echo "lint $$m with upjet $$u"; \
			(cd "$(UPJET_TREE)$$(basename "$$u")/$$m" && \
				"$(CURDIR)/bin/golangci-lint" run --build-tags upjet --config "$(CURDIR)/.golangci.yml" ./...); \
		done; \
		(cd "$(UPJET_TREE)$$(basename "$$u")/pkg/upjet" && go test ./...); \
		(cd "$(UPJET_TREE)$$(basename "$$u")/hack/upjet" && \
			go test -tags upjet -count=1 -parallel 16 -timeout 30m -v .); \
	done

# ARGS='-sizes 10,100 -poll 5s -rounds 1' for less, ARGS=-render to write what is shown
# of the figures that are there.
.PHONY: compare
compare: controlplane ## Measure upstream beside Graft: docs/figures, and what documents quote of them (20 minutes)
	@cd hack/compare && go build -o ../../bin/compare . && ../../bin/compare -o ../../docs/figures -quotes ../.. $(ARGS)

.PHONY: mutants
mutants: tools ## Say which changes to a package its tests miss (PKG=./pkg/watch N=100 SEED=1; ALSO for more tests)
	@hack/tools/mutants.sh $(PKG) $(N) $(SEED) $(ALSO)

.PHONY: generate
generate: ## Write the pass-through of upstream's API, and the golden files of Graft's
	cd hack && go run ./passthrough -api api

.PHONY: line
line: ## Write, build and test the tree of a line in bin/line (RUNTIME=v2.2.1)
	cd hack && go run ./line -runtime $(RUNTIME) -version '$(LINE_VERSION)'

.PHONY: release
release: ## Tag both lines in a copy, and adopt them from a module proxy of files with an empty module cache
	cd hack && go test -tags release -count=1 -timeout 60m -v -run TestRelease ./line

.PHONY: newest
newest: ## Build and test with controller-runtime v0.23 to v0.25 and the newest crossplane-runtime, and say what broke (ARGS=-build)
	@hack/tools/newest.sh $(ARGS)

# One run in a workspace of all modules reads once what they depend on.
.PHONY: lint
lint: tools ## Run the linters, check words, links, sizes and pins, and look for known vulnerabilities
	@hack/tools/words.sh
	@hack/tools/links.sh
	@hack/tools/sizes.sh
	@hack/tools/pins.sh
	@set -e; for m in $(MODULES); do (cd $$m && go mod tidy -diff); done
	@rm -rf bin/lint && mkdir -p bin/lint && GOWORK="$(CURDIR)/bin/lint/go.work" go work init $(MODULES)
	GOWORK="$(CURDIR)/bin/lint/go.work" bin/golangci-lint run $(addsuffix /...,$(MODULES:%=./%))
	@hack/tools/vulncheck.sh "$(CURDIR)/bin/govulncheck" $(MODULES)

.PHONY: fmt
fmt: tools ## Format all code as lint wants it
	@set -e; for m in $(MODULES); do \
		(cd $$m && "$(CURDIR)/bin/golangci-lint" fmt --config "$(CURDIR)/.golangci.yml"); \
	done

.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp for some of them)
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./pkg/...

# Helpers without a line in help.

.PHONY: upjet-tree
upjet-tree:
	@set -e; for u in $(UPJET); do hack/upjet/tree.sh "$$u" "$(UPJET_TREE)$$(basename "$$u")"; done

.PHONY: controlplane
controlplane:
	@cd hack && go run ./internal/controlplane/cmd/controlplane build

# The go command knows best whether these are up to date.
.PHONY: tools
tools:
	@mkdir -p bin && cd hack/tools && go build -o ../../bin/ tool

.PHONY: detector
detector:
	@$(if $(RACE),:,echo "No C compiler was found: tests run without the race detector.")
