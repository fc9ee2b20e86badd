# The catalog's image: opm, the catalog, the cache that opm would otherwise build at each start, and the program for OLM's
# probes.
#
#   docker build -f catalog.Dockerfile .
#
# takes opm from its own image. "make release" does the same without a container, with the pinned opm, and reads the labels here: each
# is one line (hack/images/image.sh).
FROM quay.io/operator-framework/opm:v1.73.0 AS opm
COPY catalog/verticalscaler-operator/ /configs/verticalscaler-operator/
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

FROM scratch
ARG VERSION=unknown
LABEL operators.operatorframework.io.index.configs.v1=/configs
LABEL org.opencontainers.image.title="Catalog of VerticalScaler"
LABEL org.opencontainers.image.description="A file-based catalog for the Operator Lifecycle Manager."
LABEL org.opencontainers.image.version=$VERSION
LABEL org.opencontainers.image.source="https://github.com/verticalscaler/verticalscaler-operator"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.vendor="VerticalScaler"
COPY --from=opm /bin/opm /bin/grpc_health_probe /bin/
# The cache has a checksum of the catalog's names, permissions and contents: both come from the same place.
COPY --from=opm /configs /configs
COPY --from=opm /tmp/cache /tmp/cache
# OLM runs catalogs as this user too. The cache belongs to its group, 0.
USER 1001:0
EXPOSE 50051
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
