# Tools that are built from pinned sources.
#
# A go.mod says the versions, and its go.sum pins the sources: hack/tools for the small tools, and a module below it for each family
# with requirements that do not go together (docs/adr/0066). A tool is built once for each version, into bin/tools. To change a
# version: "go get <module>@<version>" in that module, then "go mod tidy".

TOOLS_DIR := bin/tools

# Arguments of a call are separated by commas.
comma := ,

# $(call version,<module folder>,<module path>): the version that the folder's go.mod asks for.
version = $(shell sed -n 's|^[[:space:]]*\(require \)*$(2) \(v[^ ]*\).*|\2|p' $(1)/go.mod)

CONTROLLER_GEN_VERSION := $(call version,hack/tools,sigs.k8s.io/controller-tools)
KUSTOMIZE_VERSION      := $(call version,hack/tools,sigs.k8s.io/kustomize/kustomize/v5)
CRD_REF_DOCS_VERSION   := $(call version,hack/tools,github.com/elastic/crd-ref-docs)
GOLANGCI_LINT_VERSION  := $(call version,hack/tools/lint,github.com/golangci/golangci-lint/v2)
KUBE_API_LINTER_VERSION := $(call version,hack/tools/lint,sigs.k8s.io/kube-api-linter)
OPERATOR_SDK_VERSION   := $(call version,hack/tools/sdk,github.com/operator-framework/operator-sdk)
OPM_VERSION            := $(call version,hack/tools/olm,github.com/operator-framework/operator-registry)
CYCLONEDX_VERSION      := $(call version,hack/tools,github.com/CycloneDX/cyclonedx-gomod)
HEALTH_PROBE_VERSION   := $(call version,hack/tools,github.com/grpc-ecosystem/grpc-health-probe)
VPA_VERSION            := $(call version,bench,k8s.io/autoscaler/vertical-pod-autoscaler)
OLMV1_VERSION          := $(call version,hack/tools/olm,github.com/operator-framework/operator-controller)
OLM_VERSION            := $(call version,hack/tools/olm,github.com/operator-framework/operator-lifecycle-manager)

CONTROLLER_GEN := $(TOOLS_DIR)/controller-gen-$(CONTROLLER_GEN_VERSION)
KUSTOMIZE      := $(TOOLS_DIR)/kustomize-$(KUSTOMIZE_VERSION)
CRD_REF_DOCS   := $(TOOLS_DIR)/crd-ref-docs-$(CRD_REF_DOCS_VERSION)
GOLANGCI_LINT  := $(TOOLS_DIR)/golangci-lint-$(GOLANGCI_LINT_VERSION)
KUBE_API_LINTER := $(TOOLS_DIR)/kube-api-linter-$(KUBE_API_LINTER_VERSION)
OPERATOR_SDK   := $(TOOLS_DIR)/operator-sdk-$(OPERATOR_SDK_VERSION)
SCORECARD_TEST := $(TOOLS_DIR)/scorecard-test-$(OPERATOR_SDK_VERSION)
OPM            := $(TOOLS_DIR)/opm-$(OPM_VERSION)

# For images: the list of what is in a program, and the program that a catalog's probes call.
CYCLONEDX_GOMOD   := $(TOOLS_DIR)/cyclonedx-gomod-$(CYCLONEDX_VERSION)
GRPC_HEALTH_PROBE := $(TOOLS_DIR)/grpc-health-probe-$(HEALTH_PROBE_VERSION)

# OLM's own programs: two controllers, and two small ones that unpack bundles in pods.
OLM_OPERATOR     := $(TOOLS_DIR)/olm-$(OLM_VERSION)
OLM_CATALOG      := $(TOOLS_DIR)/catalog-$(OLM_VERSION)
OLM_CPB          := $(TOOLS_DIR)/cpb-$(OLM_VERSION)
OLM_COPY_CONTENT := $(TOOLS_DIR)/copy-content-$(OLM_VERSION)

# A program of ours from the packages of OLM v1's operator-controller (docs/adr/0066).
OLMV1            := $(TOOLS_DIR)/olmv1-$(OLMV1_VERSION)

# VPA's own programs, which the benchmarks compare with.
VPA_RECOMMENDER := $(TOOLS_DIR)/vpa-recommender-$(VPA_VERSION)
VPA_UPDATER     := $(TOOLS_DIR)/vpa-updater-$(VPA_VERSION)

# What the tests with OLM on a node need.
OLM_TOOLS := $(SCORECARD_TEST) $(OPM) $(OLM_OPERATOR) $(OLM_CATALOG) $(OLM_CPB) $(OLM_COPY_CONTENT)

# $(call build-tool,<module folder>,<package>,<tags>,<linker flags>,<cgo>): builds the target. It gets its name last, so
# that an interrupted build leaves nothing that looks finished.
define build-tool
@mkdir -p $(TOOLS_DIR)
@echo "Building $(@F)"
@cd $(1) && CGO_ENABLED=$(or $(5),0) GOOS= GOARCH= GOWORK=off \
	go build -tags '$(3)' -ldflags '-s -w $(4)' -o $(CURDIR)/$@.new $(2)
@mv $@.new $@
endef

$(CONTROLLER_GEN):
	$(call build-tool,hack/tools,sigs.k8s.io/controller-tools/cmd/controller-gen,,-X sigs.k8s.io/controller-tools/pkg/version.version=$(CONTROLLER_GEN_VERSION))

$(KUSTOMIZE):
	$(call build-tool,hack/tools,sigs.k8s.io/kustomize/kustomize/v5)

$(CRD_REF_DOCS):
	$(call build-tool,hack/tools,github.com/elastic/crd-ref-docs)

$(GOLANGCI_LINT):
	$(call build-tool,hack/tools/lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,,-X main.version=$(GOLANGCI_LINT_VERSION))

# This is golangci-lint with kube-api-linter built in.
$(KUBE_API_LINTER):
	$(call build-tool,hack/tools/lint,sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter)

# Without the tag, it needs cgo and the headers of gpgme.
sdk_version := github.com/operator-framework/operator-sdk/internal/version
$(OPERATOR_SDK):
	$(call build-tool,hack/tools/sdk,github.com/operator-framework/operator-sdk/cmd/operator-sdk,containers_image_openpgp,$(foreach name,Version GitVersion ImageVersion,-X $(sdk_version).$(name)=$(OPERATOR_SDK_VERSION)))

$(SCORECARD_TEST):
	$(call build-tool,hack/tools/sdk,github.com/operator-framework/operator-sdk/images/scorecard-test,containers_image_openpgp)

# Without json1, the database that catalogs used to be in does not compile.
registry := github.com/operator-framework/operator-registry
$(OPM):
	$(call build-tool,hack/tools/olm,$(registry)/cmd/opm,containers_image_openpgp$(comma)json1,-X $(registry)/cmd/opm/version.opmVersion=$(OPM_VERSION))

lifecycle := github.com/operator-framework/operator-lifecycle-manager
build-olm = $(call build-tool,hack/tools/olm,$(lifecycle)/$(1),containers_image_openpgp$(comma)json1,-X $(lifecycle)/pkg/version.OLMVersion=$(OLM_VERSION:v%=%))
$(OLM_OPERATOR):
	$(call build-olm,cmd/olm)

$(OLM_CATALOG):
	$(call build-olm,cmd/catalog)

$(OLM_CPB):
	$(call build-olm,util/cpb)

$(OLM_COPY_CONTENT):
	$(call build-olm,cmd/copy-content)

# This one is also built again after a change of its source.
$(OLMV1): $(wildcard hack/tools/olm/*.go)
	$(call build-tool,hack/tools/olm,.,containers_image_openpgp)

autoscaler := k8s.io/autoscaler/vertical-pod-autoscaler
$(VPA_RECOMMENDER):
	$(call build-tool,bench,$(autoscaler)/pkg/recommender)

$(VPA_UPDATER):
	$(call build-tool,bench,$(autoscaler)/pkg/updater)

$(CYCLONEDX_GOMOD):
	$(call build-tool,hack/tools,github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)

$(GRPC_HEALTH_PROBE):
	$(call build-tool,hack/tools,github.com/grpc-ecosystem/grpc-health-probe)

# The linter of prose. Its parsers are written in C, so it needs a C compiler.
VALE_VERSION := $(call version,hack/tools,github.com/vale-cli/vale/v3)
VALE         := $(TOOLS_DIR)/vale-$(VALE_VERSION)

$(VALE):
	$(call build-tool,hack/tools,github.com/vale-cli/vale/v3/cmd/vale,,-X main.version=$(VALE_VERSION),1)
