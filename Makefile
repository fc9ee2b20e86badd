# "make help" lists the targets. They need Go, GNU make and git, and gcc for the race detector. Tools are built from pinned
# sources (hack/tools.mk), and so is the cluster of the tests and the demo (hack/cluster).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

include hack/tools.mk

# The version and the image of the operator, both from config/manager/kustomization.yaml.
VERSION := $(shell sed -n 's/^ *newTag: *v//p' config/manager/kustomization.yaml)
IMAGE := $(shell sed -n 's/^ *newName: *//p' config/manager/kustomization.yaml):v$(VERSION)
IMG ?= $(IMAGE)
BUNDLE_IMG ?= $(subst :v,-bundle:v,$(IMG))
CATALOG_IMG ?= $(subst :v,-catalog:v,$(IMG))

# The platforms of the images, such as linux/amd64,linux/arm64: this machine's if not set.
PLATFORMS ?=
# The OCI archive to write: bin/images/KIND.tar if not set.
IMAGE_ARCHIVE ?=
export PLATFORMS IMAGE_ARCHIVE

# The folder is not always a git checkout that git trusts, and nothing here needs its commit in a binary.
export GOFLAGS := $(strip $(filter-out -buildvcs% -mod=%,$(shell go env GOFLAGS)) -buildvcs=false)
export GOWORK := off

# The modules of this repository, those of them that have tests of their own, and those that others import or copy.
MODULES := . $(patsubst %/go.mod,%,$(wildcard api/go.mod bench/go.mod hack/*/go.mod hack/tools/*/go.mod))
TESTED_MODULES := $(filter-out . bench hack/tools/%,$(MODULES))
LINTED_MODULES := $(filter api,$(MODULES))

# The packages to test and further flags: make test PKG=./internal/quantity ARGS='-run TestFormat -v'
PKG ?= ./...
ARGS ?=
TEST_TIMEOUT ?= 30m

# The folder with the programs of the test cluster. They are built when they are needed, which takes minutes the first time.
CLUSTER_DIR = $$(hack/cluster/build.sh)

##@ Daily work

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo

# The package of the API, by its import path: it is loaded with the operator's version of Kubernetes, so that the CRD of
# ScaledDeployments has the newest fields of pods. Its own module asks for the oldest version (ADR 58).
API := $(shell sed -n 's|^module ||p' api/go.mod)/v1beta1

.PHONY: generate
generate: manifests $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Generate deep copies, CRDs, docs/api.md, docs/metrics.md and the Grafana dashboards from Go code.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=$(API)
	@mkdir -p docs
	$(CRD_REF_DOCS) --log-level=ERROR --max-depth=20 --source-path=api/v1beta1 --config=hack/tools/docs/config.yaml \
		--renderer=markdown --templates-dir=hack/tools/docs/templates --output-path=docs/api.md
	go run ./hack/metrics >docs/metrics.md
	cd hack/grafana && go run . ../../config/components/grafana

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs in config/crd/bases.
	@rm -rf bin/crds
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=true paths=$(API) output:crd:dir=bin/crds
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_verticalscalers.yaml
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_verticalscalercheckpoints.yaml
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_newpodsizes.yaml
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_scaleddeployments.yaml spec.template
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_scalingpolicies.yaml
	go run ./hack/crd bin/crds/autoscaling.verticalscaler.io_clusterscalingpolicies.yaml
	@mkdir -p config/crd/bases && rm -f config/crd/bases/*.yaml && mv bin/crds/*.yaml config/crd/bases/ && rmdir bin/crds

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the Go code.
	$(GOLANGCI_LINT) fmt

# Documentation, and what users read of CRDs, the bundle, alerts, policies and Go code.
PROSE_DOCS := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs
PROSE_SOURCES := config/crd/bases config/manifests/bases config/components config/monitoring cmd controllers internal

lint: lint-prose

.PHONY: lint-prose
lint-prose: $(VALE) ## Check the language of documentation, CRDs and messages.
	@hack/vale/check.sh $(VALE)
	@rm -rf bin/vale
	@go run ./hack/prose -out bin/vale $(PROSE_SOURCES)
	$(VALE) --output=line $(PROSE_DOCS) bin/vale

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the rules for code, including which package may import which.
	$(GOLANGCI_LINT) config verify
	$(GOLANGCI_LINT) run
	@for module in $(LINTED_MODULES); do \
		echo "golangci-lint in $$module"; \
		(cd $$module && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml); \
	done

lint: lint-api

.PHONY: lint-api
lint-api: $(KUBE_API_LINTER) ## Check the API types with kube-api-linter (.golangci-kal.yml).
	cd api && $(CURDIR)/$(KUBE_API_LINTER) run --config $(CURDIR)/.golangci-kal.yml ./v1beta1/...

.PHONY: vet
vet: ## Run go vet in every module.
	go vet -tags $(TEST_TAGS) ./...
	@for module in $(LINTED_MODULES); do \
		echo "go vet in $$module"; \
		(cd $$module && go vet ./...); \
	done
	@for module in $(filter hack/%,$(TESTED_MODULES)); do \
		echo "go vet in $$module"; \
		(cd $$module && CGO_ENABLED=0 go vet -tags images -trimpath ./...); \
	done

.PHONY: build
build: ## Build the manager for this machine: bin/manager.
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=v$(VERSION)' -o bin/manager .

# A folder of the PATH makes "kubectl vscaler" work, and its completion: make plugin PLUGIN_DIR=~/.local/bin
PLUGIN_DIR ?= bin

.PHONY: plugin
plugin: ## Build the plugin of kubectl for this machine: bin/kubectl-vscaler.
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=v$(VERSION)' -o $(PLUGIN_DIR)/kubectl-vscaler ./cmd/kubectl-vscaler
	install -m 0755 cmd/kubectl-vscaler/kubectl_complete-vscaler $(PLUGIN_DIR)/

.PHONY: run
run: ## Run the manager here, against the cluster of your kubeconfig. Applies the CRDs first.
	kubectl apply --server-side -k config/crd
	go run . --config=config/manager/local.yaml

.PHONY: demo
demo: ## Show the operator at work in a local cluster. DEMO=once: exits after its checks.
	CGO_ENABLED=0 go build -trimpath -o bin/demo/ . ./cmd/kubectl-vscaler ./hack/demo
	LOCALCLUSTER="$(CLUSTER_DIR)/localcluster" bin/demo/demo $(addprefix -,$(filter once,$(DEMO))) $(ARGS)

##@ Tests

# A test with a build tag needs what the tag names: make test-NAME runs the tests with the tag NAME. All others need nothing.
TEST_TAGS := integration,fleet,cluster,olm,olmv1,node,prometheus,web,faults

# $(call packages,<packages>): these, unless PKG names others.
packages = $(if $(filter file,$(origin PKG)),$(1),$(PKG))

.PHONY: test
test: ## Run all tests that need no cluster, cached, with -short: unit, replay, one step. PKG=./internal/quantity ARGS='-run TestFormat -v'
	go test -short $(ARGS) $(PKG)
	@$(if $(filter file,$(origin PKG)),$(MAKE) --no-print-directory test-modules)

.PHONY: test-long
test-long: ## Run the tests that are shorter in make test in full: decision tables, model checker, order walker, admission policies.
	go test $(ARGS) $(call packages,$$(grep -rl --include='*_test.go' 'testing\.Short()' cmd controllers internal test | xargs grep -L '^//go:build' | xargs -n1 dirname | sort -u | sed 's|^|./|'))

# Packages without tests are left out: to compile hack/cluster is to compile Kubernetes.
.PHONY: test-modules
test-modules: ## Run the tests of the other modules, as "make test" does.
	@for module in $(TESTED_MODULES); do \
		(cd $$module && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | xargs -r go test $(ARGS)); \
	done

# The packages in test/ and the simulations of promotions are left out: the code that they test has no goroutines, and it is
# ten times slower that way.
.PHONY: test-race
test-race: ## Run the unit and one-step tests with the race detector.
	@cc="$$(go env CC)"; command -v "$${cc%% *}" >/dev/null || { \
		echo "The race detector needs a C compiler: install gcc and libc6-dev, or set CC." >&2; exit 1; }
	CGO_ENABLED=1 go test -race -skip TestFleetPromotion -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,$(API) ./cmd/... ./controllers/... ./internal/...)

# In these, KUBEBUILDER_ASSETS may name a folder with etcd and kube-apiserver of your own.
# Reconciles read the cache without copies: client-go ends the tests if one modifies it.
.PHONY: test-integration
test-integration: ## Run the tests against an API server: watches, schema, policies. ARGS='-run TestScalerSpec'
	@hack/cluster/build.sh >/dev/null
	KUBE_CACHE_MUTATION_DETECTOR=true go test -tags integration -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,./test/stepped ./test/integration)

.PHONY: test-cluster
test-cluster: ## Run the tests against a whole control plane with simulated nodes. ARGS='-run TestRollout'
	hack/cluster/with.sh go test -tags cluster -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,./test/cluster)

.PHONY: test-install
test-install: ## Install, upgrade and remove the operator without OLM, with the commands of the documentation. ARGS='-run TestUpgrade'
	hack/cluster/with.sh go test -tags cluster -count=1 -timeout $(TEST_TIMEOUT) $(ARGS) ./test/install

.PHONY: test-fleet
test-fleet: ## Let one policy size 5,000 Deployments on an API server.
	@hack/cluster/build.sh >/dev/null
	go test -tags integration,fleet -count=1 -timeout $(TEST_TIMEOUT) -run TestFleetOfFiveThousand $(ARGS) ./test/integration

.PHONY: test-faults
test-faults: ## Kill the manager at its writes, and compare with a run without faults. ARGS="-run 'TestFaults/up/none'"
	@hack/cluster/build.sh >/dev/null
	go test -tags faults -v -count=1 -timeout $(TEST_TIMEOUT) $(ARGS) ./test/faults

.PHONY: test-prometheus
test-prometheus: ## Run the tests with a real Prometheus. Needs Debian's package prometheus.
	@for program in prometheus promtool; do command -v $$program >/dev/null || { \
		echo "A real Prometheus is missing: apt-get install --no-install-recommends prometheus" >&2; exit 1; }; done
	@hack/cluster/build.sh >/dev/null
	go test -tags prometheus -v -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) ./test/prometheus ./test/prometheus/rules ./test/prometheus/report

# CHROMIUM names another program. VERTICALSCALER_TEST_SCREENSHOTS names a folder for pictures of the pages.
.PHONY: test-web
test-web: ## Run the tests of the dashboard in a headless browser. Needs Debian's package chromium. ARGS='-run TestWebWithTheKeyboard'
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { \
		echo "A browser is missing: apt-get install --no-install-recommends chromium, or set CHROMIUM." >&2; exit 1; }
	go test -tags web -v -count=1 -timeout $(TEST_TIMEOUT) $(or $(ARGS),-run TestWeb) $(call packages,./cmd/kubectl-vscaler)

# ARGS='-only krr' runs the rows whose issue matches.
# All tests run at once: they wait more than they work.
.PHONY: test-node
test-node: ## Run the tests against a real kubelet. Needs root on Linux; hack/node/check.sh tells what is missing.
	hack/node/check.sh -q
	go test -tags node -v -count=1 -parallel 16 -timeout 30m $(ARGS) ./test/node

.PHONY: test-node-olm
test-node-olm: ## Install, score, upgrade and remove the operator with operator-sdk on a real kubelet. Needs root on Linux.
	hack/node/check.sh -q -olm
	$(MAKE) --no-print-directory olm-node
	go test -tags node -v -count=1 -timeout 60m $(ARGS) ./test/node/olm

.PHONY: olm-node
olm-node: $(OLM_TOOLS) $(OPERATOR_SDK) $(GRPC_HEALTH_PROBE)
	IMG=$(IMAGE) OLM=$(OLM_OPERATOR) OLM_CATALOG=$(OLM_CATALOG) OLM_CPB=$(OLM_CPB) OLM_COPY_CONTENT=$(OLM_COPY_CONTENT) \
	OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) SCORECARD_TEST=$(SCORECARD_TEST) OPERATOR_SDK=$(OPERATOR_SDK) \
	hack/olm-node/build.sh

.PHONY: presubmit
presubmit: ## Run what every change must pass, as CI does: 20 minutes, and 60 CPU-minutes more the first time.
	.ci/run --no-install presubmit

.PHONY: periodic
periodic: ## Run everything dearer: real kills, fuzz, race, fleets, nodes, all of OLM, Prometheus, a browser, images. Takes hours.
	.ci/run --no-install periodic

# What the tests with OLM start, and the CRDs of OLM, which are in its module. BUNDLE is the bundle to install.
BUNDLE ?= bundle
OLM_MODULE := github.com/operator-framework/operator-lifecycle-manager

.PHONY: test-olm
test-olm: $(OLM_OPERATOR) $(OLM_CATALOG) $(OPM) ## Install, upgrade and remove the operator with OLM's own programs. ARGS='-run TestOLM/Upgrade'
	@hack/cluster/build.sh >/dev/null
	@olm="$$(cd hack/tools/olm && go mod download $(OLM_MODULE) && go list -m -f '{{.Dir}}' $(OLM_MODULE))"; \
	OLM_OPERATOR=$(OLM_OPERATOR) OLM_CATALOG=$(OLM_CATALOG) OPM=$(OPM) \
	OLM_CRDS="$$olm/deploy/chart/crds" BUNDLE="$(BUNDLE)" \
	go test -tags olm -v -count=1 -timeout 30m ./test/olm $(ARGS)

OLMV1_MODULE := github.com/operator-framework/operator-controller

.PHONY: test-olm-v1
test-olm-v1: $(OLMV1) $(OLMV1_CATALOGD) ## Install, upgrade and remove the operator with the parts of OLM v1: catalogd, the renderer, the CRD checks.
	@hack/cluster/build.sh >/dev/null
	@module="$$(cd hack/tools/olmv1 && go mod download $(OLMV1_MODULE) && go list -m -f '{{.Dir}}' $(OLMV1_MODULE))"; \
	OLMV1=$(OLMV1) OLMV1_CATALOGD=$(OLMV1_CATALOGD) OLMV1_MODULE="$$module" BUNDLE="$(BUNDLE)" \
	go test -tags olm,olmv1 -v -count=1 -timeout 30m ./test/olm $(or $(ARGS),-run TestVersion1)

.PHONY: scorecard
scorecard: $(SCORECARD_TEST) ## Run the scorecard tests of the bundle against a cluster. ARGS='-run TestBundle/olm'
	KUBEBUILDER_ASSETS="$(CLUSTER_DIR)/assets" SCORECARD_TEST=$(CURDIR)/$(SCORECARD_TEST) \
	go test -tags cluster -v -count=1 -timeout $(TEST_TIMEOUT) ./test/scorecard $(or $(ARGS),-run TestBundle)

# FUZZTIME=2000x runs each target so often, and repeats what is kept in testdata/fuzz. A failed target does not stop the others.
.PHONY: fuzz
fuzz: ## Look for counterexamples with every fuzz target, FUZZTIME=1m each, or FUZZTIME=2000x inputs each.
	@grep -rlE --include='*_test.go' '^func Fuzz' cmd controllers internal test | xargs -r -n1 dirname | sort -u | { \
	failed=; while read -r dir; do \
		binary="$$(mktemp)"; \
		go test -c -o "$$binary" -fuzz . "./$$dir" </dev/null || failed="$$failed $$dir"; \
		for name in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$dir"/*_test.go | cut -d' ' -f2); do \
			echo "$$name in $$dir"; \
			(cd "$$dir" && "$$binary" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZTIME) -test.timeout $(TEST_TIMEOUT) \
				-test.fuzzcachedir "$$(go env GOCACHE)/fuzz/$$dir") </dev/null || failed="$$failed $$dir/$$name"; \
		done; \
		rm -f "$$binary"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }; }

FUZZTIME ?= 1m

# How many scalers bench-cluster has.
SCALERS ?= 1000

# ARGS='-stages idle,oom' runs these stages, ARGS=-help lists all flags.
.PHONY: bench-cluster
bench-cluster: $(VPA_RECOMMENDER) $(VPA_UPDATER) ## Run the operator, and VPA after it, on real API servers: start, idle, OOM kills, a wave. SCALERS=5000
	@hack/cluster/build.sh >/dev/null
	@mkdir -p bin/bench
	CGO_ENABLED=0 go build -trimpath -o bin/bench/ .
	CGO_ENABLED=0 go -C bench build -trimpath -o ../bin/bench/bench .
	@bin/bench/bench -scalers $(SCALERS) -operator bin/bench/verticalscaler-operator \
		-vpa-recommender $(VPA_RECOMMENDER) -vpa-updater $(VPA_UPDATER) $(ARGS)

# The tables to replay, in a folder, and flags: make record TRACES=FOLDER RECORD_ARGS="-group 'containers=web-*'"
RECORD_ARGS ?=

.PHONY: record
record: ## Replay a folder of recorded usage, TRACES, with each profile and with VPA's rule, and compare them.
	@: $${TRACES:?names no folder of tables: docs/record.md}
	go -C bench build -o ../bin/bench/record ./record
	@bin/bench/record $(RECORD_ARGS) "$(TRACES)"

.PHONY: picture
picture: ## Draw the picture of the README, docs/images/usage.svg.
	go -C bench run ./picture ../docs/images/usage.svg

.PHONY: bench
bench: ## Test the benchmarks, and compare what a container costs with VPA's own packages, in one run: heap, CPU and checkpoint.
	cd bench && CGO_ENABLED=0 go test -trimpath -bench . -timeout $(TEST_TIMEOUT) $(ARGS) ./...

.PHONY: golden
golden: ## Rewrite the golden files. Read the difference before you commit it.
	@grep -rlE --include='*_test.go' 'flag\.Bool\("update"' controllers hack internal test | xargs -r -n1 dirname | sort -u | \
	while read -r dir; do go test "./$$dir" -update </dev/null; done

.PHONY: verify
verify: ## Generate all files, run all checks except the tests, and fail if a file has changed.
	@MAKE="$(MAKE)" hack/verify.sh $(MODULES)

##@ Release

.PHONY: image
image: ## Build the operator's image, IMG: bin/images/operator.tar, an OCI archive. Needs no container engine.
	VERSION=v$(VERSION) hack/images/image.sh operator $(IMG)

.PHONY: image-check
image-check: ## Build the operator's image twice and compare, check its contents, and run it. Needs root on Linux.
	cd hack/images && VERSION=v$(VERSION) CGO_ENABLED=0 go test -trimpath -count=1 -tags images -v -run OperatorImage ./test

# VERSION on the command line must be that of the tree, which "make version" sets. The last step writes the checksums of all files
# to download. The catalog's image has one platform: the first of PLATFORMS.
REPOSITORY := $(firstword $(subst :v, ,$(IMAGE)))

.PHONY: release
release: $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) $(GRPC_HEALTH_PROBE) ## Build all that a release publishes, and what the hubs get: bin/release. VERSION=0.2.0 must be the tree's.
	@hack/releasable.sh "$(VERSION)"
	rm -rf bin/release
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/operator.tar VERSION=v$(VERSION) hack/images/image.sh operator $(IMAGE)
	OPERATOR_SDK=$(OPERATOR_SDK) KUSTOMIZE=$(KUSTOMIZE) hack/release.sh $(VERSION) $(REPOSITORY) bin/release/operator.tar bin/release
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/bundle.tar BUNDLE=bin/release/bundle VERSION=v$(VERSION) hack/images/image.sh bundle $(BUNDLE_IMG)
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/scorecard.tar VERSION=v$(VERSION) hack/images/image.sh scorecard $(SCORECARD_IMG)
	OPM=$(OPM) hack/images/catalog.sh catalog/verticalscaler-operator.yaml bin/release/catalog \
		$(filter-out %=$(BUNDLE),$(CATALOG_BUNDLES)) $(BUNDLE_IMAGE):v$(VERSION)=bin/release/bundle
	PLATFORMS=$(firstword $(subst $(comma), ,$(PLATFORMS))) IMAGE_ARCHIVE=$(CURDIR)/bin/release/catalog.tar CATALOG=bin/release/catalog \
		OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) VERSION=v$(VERSION) hack/images/image.sh catalog $(CATALOG_IMG)
	go run ./hack/hub -bundle bin/release/bundle -catalog bin/release/catalog/basic.yaml bin/release/hub
	cp $(filter-out dist/install.yaml,$(wildcard dist/*.yaml)) bin/release/
	$(MAKE) --no-print-directory release-plugin

# PLUGIN_PLATFORMS=linux/amd64 builds it for these only.
PLUGIN_PLATFORMS ?=

.PHONY: release-plugin
release-plugin: ## Build the plugin for all platforms, with SBOMs, checksums and a manifest for krew: bin/release.
	cd hack/release && go run -trimpath . -version v$(VERSION) -folder $(CURDIR)/bin/release -platforms "$(PLUGIN_PLATFORMS)"

.PHONY: version
version: ## Make this tree VERSION=0.2.0: version, changelog, channel candidate, and the generated files. To be committed.
	@hack/version.sh "$(VERSION)"
	$(MAKE) --no-print-directory dist bundle catalog olm-v1

.PHONY: release-check
release-check: $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) $(GRPC_HEALTH_PROBE) ## Release the next version in a copy of this tree, and check what would be pushed.
	hack/release-check.sh

.PHONY: hub
hub: ## Write what OperatorHub.io and OpenShift's catalog would get of this tree: bin/hub.
	go run ./hack/hub bin/hub

.PHONY: sbom
sbom: $(CYCLONEDX_GOMOD) ## Write what the operator's program is made of to bin/images, in CycloneDX's format.
	CYCLONEDX_GOMOD=$(CYCLONEDX_GOMOD) VERSION=v$(VERSION) hack/images/sbom.sh

.PHONY: dist
dist: $(KUSTOMIZE) ## Render config/default to dist/install.yaml, and beside it what is installed apart.
	@mkdir -p dist
	$(KUSTOMIZE) build config/default >dist/install.yaml
	$(KUSTOMIZE) build config/admission-policies >dist/admission-policies.yaml
	$(KUSTOMIZE) build config/monitoring >dist/monitoring.yaml
	$(KUSTOMIZE) build config/monitoring/cert-manager >dist/monitoring-cert-manager.yaml
	$(KUSTOMIZE) build config/grafana >dist/grafana.yaml
	$(KUSTOMIZE) build config/argocd >dist/argocd.yaml
	$(KUSTOMIZE) build config/new-pods >dist/new-pods.yaml
	$(KUSTOMIZE) build config/recreate >dist/recreate.yaml
	$(KUSTOMIZE) build config/policies >dist/policies.yaml

.PHONY: bundle
bundle: $(OPERATOR_SDK) $(KUSTOMIZE) ## Generate the bundle for OLM.
	OPERATOR_SDK=$(OPERATOR_SDK) KUSTOMIZE=$(KUSTOMIZE) hack/bundle.sh $(VERSION) $(IMAGE)

.PHONY: bundle-validate
bundle-validate: $(OPERATOR_SDK) ## Check the bundle with the validators of operator-sdk.
	@for validators in suite=operatorframework name=community; do \
		$(OPERATOR_SDK) bundle validate $(BUNDLE) --select-optional $$validators --optional-values=k8s-version=1.34 \
			--optional-values=index-path=bundle.Dockerfile || exit; \
	done

.PHONY: released-crds
released-crds: ## Note that the CRDs of this tree have been released: the next ones are compared with them.
	@rm -f test/bundle/testdata/released/*.yaml
	cp config/crd/bases/*.yaml test/bundle/testdata/released/

.PHONY: bundle-image
bundle-image: ## Build the bundle's image, BUNDLE_IMG: bin/images/bundle.tar.
	VERSION=v$(VERSION) hack/images/image.sh bundle $(BUNDLE_IMG)

# The bundles in the catalog, by their public names. Released ones are kept in catalog/bundles, by version.
BUNDLE_IMAGE := $(shell sed -n 's/^ *newName: *//p' config/manager/kustomization.yaml)-bundle
CATALOG_BUNDLES = $(foreach folder,$(wildcard catalog/bundles/v*),$(BUNDLE_IMAGE):$(notdir $(folder))=$(folder)) \
	$(BUNDLE_IMAGE):v$(VERSION)=$(BUNDLE)

.PHONY: catalog
catalog: $(OPM) ## Render the file-based catalog from catalog/verticalscaler-operator.yaml. Needs no network.
	OPM=$(OPM) hack/images/catalog.sh catalog/verticalscaler-operator.yaml catalog $(CATALOG_BUNDLES)

# For the ClusterExtension of the documentation.
.PHONY: olm-v1
olm-v1: $(OLMV1) ## Generate dist/olm-v1.yaml, the rights with which OLM v1 installs the bundle.
	@mkdir -p bin/olm-v1
	$(OLMV1) rights -bundle $(BUNDLE) -extension docs/olm.md >bin/olm-v1/rights.yaml
	mv bin/olm-v1/rights.yaml dist/olm-v1.yaml

SCORECARD_IMG ?= $(subst :v,-scorecard:v,$(IMG))

.PHONY: scorecard-image
scorecard-image: ## Build the image of the scorecard's own tests, SCORECARD_IMG: bin/images/scorecard.tar.
	VERSION=v$(VERSION) hack/images/image.sh scorecard $(SCORECARD_IMG)

.PHONY: catalog-image
catalog-image: $(OPM) $(GRPC_HEALTH_PROBE) ## Build the catalog's image, CATALOG_IMG: bin/images/catalog.tar.
	OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) VERSION=v$(VERSION) hack/images/image.sh catalog $(CATALOG_IMG)

.PHONY: catalog-check
catalog-check: $(OPM) $(GRPC_HEALTH_PROBE) ## Check the catalog's upgrade edges, and what its image serves. Needs root.
	cd hack/images && OPM=$(CURDIR)/$(OPM) HEALTH_PROBE=$(CURDIR)/$(GRPC_HEALTH_PROBE) \
		CGO_ENABLED=0 go test -trimpath -count=1 -tags images -v -run 'Catalog|Edges' ./test

.PHONY: deploy
deploy: $(KUSTOMIZE) ## Install the operator, with image IMG, in the cluster of your kubeconfig.
	$(KUSTOMIZE) build config/default | sed 's|$(IMAGE)|$(IMG)|' | kubectl apply --server-side -f -

.PHONY: undeploy
undeploy: $(KUSTOMIZE) ## Remove all scalers, the operator and its CRDs from the cluster of your kubeconfig. Deployments stay.
	@# Policies first: they would create scalers again.
	! kubectl get crd scalingpolicies.autoscaling.verticalscaler.io >/dev/null 2>&1 || \
		kubectl delete clusterscalingpolicies,scalingpolicies --all --all-namespaces
	@# Without their CRD, ScaledDeployments would take their Deployments with them: they go alone.
	! kubectl get crd scaleddeployments.autoscaling.verticalscaler.io >/dev/null 2>&1 || \
		kubectl delete scaleddeployments --all --all-namespaces --cascade=orphan
	@# Scalers then, while the operator can restore the original values.
	! kubectl get crd verticalscalers.autoscaling.verticalscaler.io >/dev/null 2>&1 || \
		kubectl delete verticalscalers --all --all-namespaces
	$(KUSTOMIZE) build config/default | kubectl delete --ignore-not-found -f -

##@ Tools

.PHONY: tools
tools: $(TOOLS) ## Build the pinned tools of daily work into bin/tools.

.PHONY: olm-tools
olm-tools: $(OLM_TOOLS) ## Build OLM, opm and the scorecard's tests into bin/tools. Takes minutes the first time.

.PHONY: cluster
cluster: ## Build the cluster of the tests and the demo, and print its folder.
	@hack/cluster/build.sh

.PHONY: clean
clean: ## Remove what has been built.
	rm -rf bin cover.out
