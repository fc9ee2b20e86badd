# Tools that are built from pinned sources.
#
# Each family has a module in hack/tools, whose go.mod says the versions and whose go.sum pins the sources. A tool is
# built once for each version, into bin/tools. To change a version: "go get <module>@<version>" in that module, then
# "go mod tidy".

TOOLS_DIR := bin/tools

# $(call version,<module folder>,<module path>): the version that the folder's go.mod asks for.
version = $(shell sed -n 's|^[[:space:]]*\(require \)*$(2) \(v[^ ]*\).*|\2|p' hack/tools/$(1)/go.mod)

CONTROLLER_GEN_VERSION := $(call version,codegen,sigs.k8s.io/controller-tools)
KUSTOMIZE_VERSION      := $(call version,codegen,sigs.k8s.io/kustomize/kustomize/v5)
CRD_REF_DOCS_VERSION   := $(call version,docs,github.com/elastic/crd-ref-docs)
GOLANGCI_LINT_VERSION  := $(call version,lint,github.com/golangci/golangci-lint/v2)
OPERATOR_SDK_VERSION   := $(call version,sdk,github.com/operator-framework/operator-sdk)

CONTROLLER_GEN := $(TOOLS_DIR)/controller-gen-$(CONTROLLER_GEN_VERSION)
KUSTOMIZE      := $(TOOLS_DIR)/kustomize-$(KUSTOMIZE_VERSION)
CRD_REF_DOCS   := $(TOOLS_DIR)/crd-ref-docs-$(CRD_REF_DOCS_VERSION)
GOLANGCI_LINT  := $(TOOLS_DIR)/golangci-lint-$(GOLANGCI_LINT_VERSION)
OPERATOR_SDK   := $(TOOLS_DIR)/operator-sdk-$(OPERATOR_SDK_VERSION)

TOOLS := $(CONTROLLER_GEN) $(KUSTOMIZE) $(CRD_REF_DOCS) $(GOLANGCI_LINT) $(OPERATOR_SDK)

# $(call build-tool,<module folder>,<package>,<tags>,<linker flags>): builds the target. It gets its name last, so that
# a build that was interrupted leaves nothing that looks finished.
define build-tool
@mkdir -p $(TOOLS_DIR)
@echo "Building $(@F)"
@cd hack/tools/$(1) && CGO_ENABLED=0 GOOS= GOARCH= GOWORK=off GOFLAGS=-mod=readonly \
	go build -trimpath -buildvcs=false -tags '$(3)' -ldflags '-s -w $(4)' -o $(CURDIR)/$@.new $(2)
@mv $@.new $@
endef

$(CONTROLLER_GEN):
	$(call build-tool,codegen,sigs.k8s.io/controller-tools/cmd/controller-gen,,-X sigs.k8s.io/controller-tools/pkg/version.version=$(CONTROLLER_GEN_VERSION))

$(KUSTOMIZE):
	$(call build-tool,codegen,sigs.k8s.io/kustomize/kustomize/v5)

$(CRD_REF_DOCS):
	$(call build-tool,docs,github.com/elastic/crd-ref-docs)

$(GOLANGCI_LINT):
	$(call build-tool,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,,-X main.version=$(GOLANGCI_LINT_VERSION))

# Without the tag, it needs cgo and the headers of gpgme.
sdk_version := github.com/operator-framework/operator-sdk/internal/version
$(OPERATOR_SDK):
	$(call build-tool,sdk,github.com/operator-framework/operator-sdk/cmd/operator-sdk,containers_image_openpgp,$(foreach name,Version GitVersion ImageVersion,-X $(sdk_version).$(name)=$(OPERATOR_SDK_VERSION)))
