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

SCORECARD_IMG ?= $(subst :v,-scorecard:v,$(IMG))

# The platforms of the images, such as linux/amd64,linux/arm64: this machine's if not set.
PLATFORMS ?=
# The OCI archive that "make image" writes: bin/images/operator.tar if not set.
IMAGE_ARCHIVE ?=
# The time of images and archives: that of the release, which is in the base of the ClusterServiceVersion.
ifndef SOURCE_DATE_EPOCH
CREATED := $(shell sed -n 's/^ *createdAt: *//p' config/manifests/bases/*.clusterserviceversion.yaml)
SOURCE_DATE_EPOCH := $(shell date -u -d $(CREATED) +%s 2>/dev/null || date -u -j -f %Y-%m-%dT%H:%M:%SZ $(CREATED) +%s)
endif
export PLATFORMS IMAGE_ARCHIVE SOURCE_DATE_EPOCH CYCLONEDX_GOMOD

# Flags from the caller's environment do not decide what is built.
export GOFLAGS := $(shell hack/goflags.sh)
export CGO_ENABLED := 0
export GOWORK := off

# The modules of this repository, and those of them that have tests of their own.
MODULES := . $(patsubst %/go.mod,%,$(wildcard api/go.mod bench/go.mod hack/*/go.mod hack/tools/*/go.mod test/*/go.mod))
TESTED_MODULES := $(filter-out . bench hack/tools/%,$(MODULES))

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
generate: manifests $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Generate deep copies, CRDs, docs/api.md and docs/metrics.md from Go code.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=$(API)
	@mkdir -p docs
	$(CRD_REF_DOCS) --log-level=ERROR --max-depth=20 --source-path=api/v1beta1 --config=hack/tools/docs/config.yaml \
		--renderer=markdown --templates-dir=hack/tools/docs/templates --output-path=docs/api.md
	go run ./hack/metrics >docs/metrics.md

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs in config/crd/bases.
	@rm -rf bin/crds
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=true paths=$(API) output:crd:dir=bin/crds
	go run ./hack/crd bin/crds/*.yaml
	@mkdir -p config/crd/bases && rm -f config/crd/bases/*.yaml && mv bin/crds/*.yaml config/crd/bases/ && rmdir bin/crds

# Documentation, and what users read of CRDs, the bundle, alerts, policies and Go code.
PROSE_DOCS := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs
PROSE_SOURCES := config/crd/bases config/manifests/bases config/components config/monitoring cmd controllers internal
# Go code whose comments are checked. The comments of api are the descriptions of the CRDs.
COMMENT_SOURCES := bench cmd controllers hack internal test

.PHONY: lint
lint: $(GOLANGCI_LINT) $(KUBE_API_LINTER) $(VALE) ## Check code, API types, and the language of documentation, CRDs, messages and comments. ARGS=--fix mends and formats.
	$(GOLANGCI_LINT) config verify
	$(GOLANGCI_LINT) run $(ARGS)
	cd api && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml $(ARGS)
	cd api && $(CURDIR)/$(KUBE_API_LINTER) run --config $(CURDIR)/.golangci-kal.yml ./v1beta1/...
	go vet -tags $(TEST_TAGS) ./...
	@for module in bench $(TESTED_MODULES); do (cd $$module && go vet ./...); done
	@hack/vale/check.sh $(VALE)
	@rm -rf bin/vale
	@go run ./hack/prose -out bin/vale $(PROSE_SOURCES)
	@go run ./hack/prose -comments -out bin/vale/comments $(COMMENT_SOURCES)
	$(VALE) --output=line $(PROSE_DOCS) bin/vale

.PHONY: build
build: ## Build the manager for this machine: bin/manager.
	go build -ldflags '-s -w -X main.version=v$(VERSION)-dev' -o bin/manager ./cmd/operator

# A folder of the PATH makes "kubectl vscaler" work, and its completion: make plugin PLUGIN_DIR=~/.local/bin
PLUGIN_DIR ?= bin

.PHONY: plugin
plugin: ## Build the plugin of kubectl for this machine: bin/kubectl-vscaler.
	go build -ldflags '-s -w -X main.version=v$(VERSION)-dev' -o $(PLUGIN_DIR)/kubectl-vscaler ./cmd/kubectl-vscaler
	install -m 0755 cmd/kubectl-vscaler/kubectl_complete-vscaler $(PLUGIN_DIR)/

.PHONY: run
run: install ## Run the manager here, against the cluster of your kubeconfig. Applies the CRDs first.
	@echo "Compiling the manager: the first time takes minutes." >&2
	kubectl get namespace verticalscaler-system >/dev/null 2>&1 || kubectl create namespace verticalscaler-system
	go run ./cmd/operator --config=config/manager/local.yaml

.PHONY: demo
demo: ## Show the operator at work in a local cluster. DEMO=once: exits after its checks.
	hack/demo/demo.sh $(addprefix -,$(filter once,$(DEMO)))

##@ Tests

# A test with a build tag needs what the tag names: make test-NAME runs the tests with the tag NAME. All others need nothing.
TEST_TAGS := integration,fleet,cluster,olm,node,prometheus,web,faults

# $(call packages,<packages>): these, unless PKG names others.
packages = $(if $(filter file,$(origin PKG)),$(1),$(PKG))

# Of the other modules, packages without tests are left out: to compile hack/cluster is to compile Kubernetes.
.PHONY: test
test: ## Run all tests that need no cluster, cached, with -short: unit, replay, one step. PKG=./internal/quantity ARGS='-run TestFormat -v'
	go test -short $(ARGS) $(PKG)
	@for module in $(if $(filter file,$(origin PKG)),$(TESTED_MODULES)); do \
		(cd $$module && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | xargs -r go test $(ARGS)); \
	done

.PHONY: test-long
test-long: ## Run the tests that are shorter in make test in full: decision tables, model checker, order walker, admission policies.
	go test -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,$$(grep -rl --include='*_test.go' 'testing\.Short()' cmd controllers internal test | xargs grep -L '^//go:build' | xargs -n1 dirname | sort -u | sed 's|^|./|'))

# The packages in test/ and the simulations of promotions are left out: the code that they test has no goroutines, and it is
# ten times slower that way.
.PHONY: test-race
test-race: ## Run the unit and one-step tests with the race detector.
	@cc="$$(go env CC)"; command -v "$${cc%% *}" >/dev/null || { \
		echo "The race detector needs a C compiler: install gcc and libc6-dev, or set CC." >&2; exit 1; }
	CGO_ENABLED=1 go test -race -skip TestFleetPromotion -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,$(API) ./cmd/... ./controllers/... ./internal/...)

# In these, KUBEBUILDER_ASSETS may name a folder with etcd and kube-apiserver of your own.
# Reconciles read the cache without copies: client-go ends the tests if one modifies it.
# TAGS=integration,fleet adds the test that lets one policy size 5,000 Deployments.
TAGS ?= integration
.PHONY: test-integration
test-integration: ## Run the tests against an API server: watches, schema, policies. ARGS='-run TestScalerSpec' TAGS=integration,fleet
	@hack/cluster/build.sh >/dev/null
	KUBE_CACHE_MUTATION_DETECTOR=true go test -tags $(TAGS) -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,./test/stepped ./test/integration)

.PHONY: test-cluster
test-cluster: ## Run the tests against a whole control plane with simulated nodes. ARGS='-run TestARollout' PKG=./test/install
	hack/cluster/with.sh go test -tags cluster -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) $(call packages,./test/cluster)

.PHONY: test-faults
test-faults: ## Kill the manager at its writes, and compare with a run without faults. ARGS="-run 'TestFaults/up/none'"
	@hack/cluster/build.sh >/dev/null
	go test -tags faults -v -count=1 -timeout $(TEST_TIMEOUT) $(ARGS) ./test/faults

.PHONY: test-prometheus
test-prometheus: ## Run the tests with a real Prometheus. Needs Debian's package prometheus.
	@for program in prometheus promtool; do command -v $$program >/dev/null || { \
		echo "A real Prometheus is missing: apt-get install --no-install-recommends prometheus" >&2; exit 1; }; done
	@hack/cluster/build.sh >/dev/null
	go test -tags prometheus -v -count=1 -p 1 -timeout $(TEST_TIMEOUT) $(ARGS) ./test/prometheus ./test/prometheus/rules

# CHROMIUM names another program. VERTICALSCALER_TEST_SCREENSHOTS names a folder for pictures of the pages.
.PHONY: test-web
test-web: ## Run the tests of the dashboard in a headless browser. Needs Debian's package chromium. ARGS='-run TestWebWithTheKeyboard'
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { \
		echo "A browser is missing: apt-get install --no-install-recommends chromium, or set CHROMIUM." >&2; exit 1; }
	go test -tags web -v -count=1 -timeout $(TEST_TIMEOUT) $(or $(ARGS),-run TestWeb) $(call packages,./cmd/kubectl-vscaler)

# All tests run at once: they wait more than they work.
.PHONY: test-node
test-node: ## Run the tests against a real kubelet. Needs root on Linux; hack/node/check.sh tells what is missing.
	hack/node/check.sh -q -programs
	go test -tags node -v -count=1 -parallel 16 -timeout 30m $(ARGS) ./test/node

.PHONY: test-node-olm
test-node-olm: $(OLM_TOOLS) $(OPERATOR_SDK) $(GRPC_HEALTH_PROBE) ## Install, score and remove the operator with operator-sdk on a real kubelet. Needs root on Linux.
	hack/node/check.sh -q -olm
	IMG=$(IMAGE) VERSION=v$(VERSION) OLM=$(OLM_OPERATOR) OLM_CATALOG=$(OLM_CATALOG) OLM_CPB=$(OLM_CPB) OLM_COPY_CONTENT=$(OLM_COPY_CONTENT) \
	OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) SCORECARD_TEST=$(SCORECARD_TEST) OPERATOR_SDK=$(OPERATOR_SDK) \
	hack/olm-node/build.sh
	go test -tags node -v -count=1 -timeout 60m $(ARGS) ./test/node/olm

# What the tests with OLM start, and the CRDs of OLM, which are in its module. BUNDLE is the bundle to install.
BUNDLE ?= bundle
OLM_MODULE := github.com/operator-framework/operator-lifecycle-manager

.PHONY: test-olm
test-olm: $(OLM_OPERATOR) $(OLM_CATALOG) $(OPM) $(OLMV1) $(SCORECARD_TEST) ## Install, upgrade and remove the operator with OLM's own programs. PKG=./test/scorecard: run the bundle's tests.
	@hack/cluster/build.sh >/dev/null
	@olm="$$(cd hack/tools/olm && go mod download $(OLM_MODULE) && go list -m -f '{{.Dir}}' $(OLM_MODULE))"; \
	OLM_OPERATOR=$(OLM_OPERATOR) OLM_CATALOG=$(OLM_CATALOG) OPM=$(OPM) OLMV1=$(OLMV1) \
	OLM_CRDS="$$olm/deploy/chart/crds" BUNDLE="$(BUNDLE)" SCORECARD_TEST=$(CURDIR)/$(SCORECARD_TEST) \
	go test -tags olm -v -count=1 -timeout 30m $(ARGS) $(call packages,./test/olm)

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
	go build -o bin/bench/ ./cmd/operator
	go -C bench build -o ../bin/bench/bench .
	@bin/bench/bench -scalers $(SCALERS) -operator bin/bench/operator \
		-vpa-recommender $(VPA_RECOMMENDER) -vpa-updater $(VPA_UPDATER) $(ARGS)

.PHONY: bench
bench: ## Test the benchmarks, and compare our rule of VPA and the import with VPA's own packages.
	cd bench && go test -timeout $(TEST_TIMEOUT) $(ARGS) ./...

.PHONY: golden
golden: ## Rewrite the golden files. Read the difference before you commit it.
	@grep -rl --include='*_test.go' 'testkit/golden"' cmd internal test | xargs -r -n1 dirname | sort -u | \
	while read -r dir; do go test "./$$dir" -update </dev/null; done

.PHONY: verify
verify: ## Generate all files, run all checks except the tests, and fail if a file has changed.
	@MAKE="$(MAKE)" hack/verify.sh $(MODULES)

.PHONY: presubmit
presubmit: ## Run what every change must pass, as CI does: 20 minutes, and 60 CPU-minutes more the first time.
	.ci/run --no-install presubmit

.PHONY: periodic
periodic: ## Run everything dearer: real kills, fuzz, race, fleets, nodes, all of OLM, Prometheus, a browser, images. Takes hours.
	.ci/run --no-install periodic

##@ Release

BUILD_IMAGE = VERSION=v$(VERSION)$(PRERELEASE) hack/images/image.sh

# Only releases have the bare version: messages of other builds name files of this checkout, which are not published yet.
.PHONY: image
image: PRERELEASE := -dev
image: ## Build the operator's image, IMG: bin/images/operator.tar, an OCI archive. Needs no container engine.
	$(BUILD_IMAGE) operator $(IMG)

.PHONY: dist
dist: $(KUSTOMIZE) $(OLMV1) ## Render config/default to dist/install.yaml, and beside it what is installed apart.
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
	$(OLMV1) rights -bundle $(BUNDLE) -extension docs/olm.md >dist/olm-v1.yaml.new
	mv dist/olm-v1.yaml.new dist/olm-v1.yaml

# The bundles in the catalog, by their public names. Released ones are kept in catalog/bundles, by version.
REPOSITORY := $(firstword $(subst :v, ,$(IMAGE)))
RELEASED_BUNDLES = $(foreach folder,$(wildcard catalog/bundles/v*),$(REPOSITORY)-bundle:$(notdir $(folder))=$(folder))

.PHONY: bundle
bundle: $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) ## Generate the bundle for OLM, check it with the validators of operator-sdk, and render the catalog.
	OPERATOR_SDK=$(OPERATOR_SDK) KUSTOMIZE=$(KUSTOMIZE) hack/bundle.sh $(VERSION) $(IMAGE)
	@for validators in suite=operatorframework name=community; do \
		$(OPERATOR_SDK) bundle validate bundle --select-optional $$validators --optional-values=k8s-version=1.34 \
			--optional-values=index-path=bundle.Dockerfile || exit; \
	done
	OPM=$(OPM) hack/images/catalog.sh catalog/verticalscaler-operator.yaml catalog $(RELEASED_BUNDLES) $(REPOSITORY)-bundle:v$(VERSION)=bundle

.PHONY: version
version: ## Make this tree VERSION=0.2.0: version, changelog, channel candidate, and the generated files. To be committed.
	@hack/version.sh "$(VERSION)"
	env -u SOURCE_DATE_EPOCH $(MAKE) --no-print-directory bundle dist

# PLUGIN_PLATFORMS=linux/amd64 builds the plugin for these only.
PLUGIN_PLATFORMS ?=

# VERSION on the command line must be that of the tree, which "make version" sets. The last step writes the checksums of all files
# to download. The catalog's image has one platform: the first of PLATFORMS.
.PHONY: release
release: $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) $(GRPC_HEALTH_PROBE) $(CYCLONEDX_GOMOD) ## Build all that a release publishes, and what the hubs get: bin/release. VERSION=0.2.0 must be the tree's.
	@hack/releasable.sh "$(VERSION)"
	rm -rf bin/release
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/operator.tar $(BUILD_IMAGE) operator $(IMAGE)
	for folder in bin/images/work/operator/*; do \
		hack/images/sbom.sh $$folder/manager v$(VERSION) bin/release/verticalscaler-operator_linux_$${folder##*/}.cdx.json; \
	done
	OPERATOR_SDK=$(OPERATOR_SDK) KUSTOMIZE=$(KUSTOMIZE) hack/release.sh $(VERSION) $(REPOSITORY) bin/release/operator.tar bin/release
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/bundle.tar BUNDLE=bin/release/bundle $(BUILD_IMAGE) bundle $(BUNDLE_IMG)
	IMAGE_ARCHIVE=$(CURDIR)/bin/release/scorecard.tar $(BUILD_IMAGE) scorecard $(SCORECARD_IMG)
	OPM=$(OPM) hack/images/catalog.sh catalog/verticalscaler-operator.yaml bin/release/catalog \
		$(RELEASED_BUNDLES) $(REPOSITORY)-bundle:v$(VERSION)=bin/release/bundle
	PLATFORMS=$(firstword $(subst $(comma), ,$(PLATFORMS))) IMAGE_ARCHIVE=$(CURDIR)/bin/release/catalog.tar CATALOG=bin/release/catalog \
		OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) $(BUILD_IMAGE) catalog $(CATALOG_IMG)
	go run ./hack/hub -bundle bin/release/bundle -catalog bin/release/catalog/basic.yaml bin/release/hub
	cp $(filter-out dist/install.yaml,$(wildcard dist/*.yaml)) bin/release/
	hack/release-plugin.sh v$(VERSION) bin/release $(subst $(comma), ,$(PLUGIN_PLATFORMS))

.PHONY: release-check
release-check: $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) $(OLMV1) $(GRPC_HEALTH_PROBE) $(CYCLONEDX_GOMOD) ## Release the next version in a copy of this tree, check it, and install it. Needs root on Linux.
	hack/release-check.sh

##@ Cluster

# The targets of a project made by operator-sdk, under their usual names. There is no container engine in docker-build: it writes an
# OCI archive.
.PHONY: install uninstall docker-build bundle-build catalog-build
install: ## Install the CRDs only, in the cluster of your kubeconfig: for make run.
	kubectl apply --server-side -k config/crd
uninstall: undeploy ## The same as undeploy.
docker-build: image ## The same as image.
bundle-build: bundle ## Build the bundle's image, BUNDLE_IMG: bin/images/bundle.tar.
	$(BUILD_IMAGE) bundle $(BUNDLE_IMG)
catalog-build: bundle $(OPM) $(GRPC_HEALTH_PROBE) ## Build the catalog's image, CATALOG_IMG: bin/images/catalog.tar.
	OPM=$(OPM) HEALTH_PROBE=$(GRPC_HEALTH_PROBE) $(BUILD_IMAGE) catalog $(CATALOG_IMG)

.PHONY: deploy
deploy: $(KUSTOMIZE) ## Install the operator, with image IMG, in the cluster of your kubeconfig.
	$(KUSTOMIZE) build config/default | sed 's|$(IMAGE)|$(IMG)|' | kubectl apply --server-side -f -

.PHONY: undeploy
undeploy: $(KUSTOMIZE) ## Remove all scalers, the operator and its CRDs from the cluster of your kubeconfig. Deployments stay.
	@# Policies first: they would create scalers again.
	! kubectl get crd scalingpolicies.autoscaling.verticalscaler.io >/dev/null 2>&1 || \
		kubectl delete clusterscalingpolicies,scalingpolicies --all --all-namespaces
	@# Without their CRD, ScaledDeployments would take their Deployments with them: they go alone.
	! kubectl get crd scaleddeployments.autoscaling.verticalscaler.io >/dev/null 2>&1 || { \
		kubectl delete scaleddeployments --all --all-namespaces --cascade=orphan && \
		kubectl annotate --overwrite crd scaleddeployments.autoscaling.verticalscaler.io autoscaling.verticalscaler.io/allow-deletion=true; }
	@# Scalers then, while the operator can restore the original values.
	! kubectl get crd verticalscalers.autoscaling.verticalscaler.io >/dev/null 2>&1 || \
		kubectl delete verticalscalers --all --all-namespaces
	$(KUSTOMIZE) build config/default | kubectl delete --ignore-not-found -f -

.PHONY: clean
clean: ## Remove what has been built.
	rm -rf bin cover.out
