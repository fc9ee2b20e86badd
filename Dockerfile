# The operator's image: one static program and the licence in an otherwise empty file system.
#
#   docker build --build-arg VERSION=v0.1.0 .
#
# compiles the program in Go's image, on the machine's own platform for the requested platform, so it needs no emulator.
# "make image" makes the same image without a container engine, and reads the labels here: each is one line (hack/images/image.sh).
FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/golang:1.26.8 AS build
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=unknown
WORKDIR /src

# Modules change less often than code: they have a layer of their own.
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN go mod download

COPY cmd/operator/ cmd/operator/
COPY api/ api/
COPY controllers/ controllers/
COPY internal/ internal/
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w -X main.version=$VERSION" -o /out/$TARGETARCH/manager ./cmd/operator

# The operator finds the API server's certificate in the volume of its service account, creates the certificate of its metrics in
# memory, and writes no files. So the image needs nothing else.
FROM scratch
ARG TARGETARCH
ARG VERSION=unknown
LABEL org.opencontainers.image.title="VerticalScaler"
LABEL org.opencontainers.image.description="Keeps the CPU and memory of Deployments' pods at what they need."
LABEL org.opencontainers.image.version=$VERSION
LABEL org.opencontainers.image.source="https://github.com/verticalscaler/verticalscaler-operator"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.vendor="VerticalScaler"
# What Red Hat's certification asks for, and what OpenShift's console shows. A version is built once, so the release is always 1.
LABEL name="verticalscaler-operator"
LABEL vendor="VerticalScaler"
LABEL maintainer="maintainers@verticalscaler.io"
LABEL version=$VERSION
LABEL release="1"
LABEL summary="Keeps the CPU and memory of Deployments' pods at what they need."
LABEL description="A Kubernetes operator that sizes the pods of Deployments: in place, without restarts, as their usage asks for."
COPY --chmod=0644 LICENSE /licenses/LICENSE
COPY --from=build --chmod=0755 /out/$TARGETARCH/manager /manager
# A number, so that the kubelet can verify that it is not root. The user needs no name.
USER 65532:65532
ENTRYPOINT ["/manager"]
