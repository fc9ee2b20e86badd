# The operator's image: one static program in an otherwise empty file system.
#
# It is built on the machine's own platform and compiled for the platform that is asked for, so that no emulator is needed.
FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/golang:1.26.8 AS build
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=unknown
WORKDIR /src

# Modules change less often than code: they have a layer of their own.
COPY go.mod go.sum ./
RUN go mod download

COPY main.go ./
COPY api/ api/
COPY controllers/ controllers/
COPY internal/ internal/
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /manager .

# It trusts the API server by the certificate in its service account's token volume, makes the certificate of its metrics in
# memory, and writes no files: so there is nothing else to put here.
FROM scratch
COPY --from=build /manager /manager
# A number, so that the kubelet can see that it is not root. The user needs no name.
USER 65532:65532
ENTRYPOINT ["/manager"]
