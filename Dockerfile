# An image of sepp-trio: slim, not root, no password built in.
#
#   docker build -t sepp-trio .
#   docker run -p 50051:50051 -p 9465:9465 -v sepp-data:/sepp/sepp-data -v sepp-etc:/etc/sepp sepp-trio
#
# The first start writes /etc/sepp/sepp.toml with a random admin key and prints that key once; keep
# /etc/sepp in a volume, or mount a file of your own there. All steps of the build are in one script
# that the tests run without Docker.

FROM python:3.13-slim AS build
COPY . /src
RUN PIP_NO_CACHE_DIR=1 sh /src/tools/deploy/image/install /src /image

FROM python:3.13-slim
COPY --from=build /image/ /
RUN groupadd --gid 65532 sepp \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /sepp --shell /usr/sbin/nologin sepp \
 && chown -R 65532:65532 /sepp /etc/sepp
ENV PATH=/opt/sepp/bin:$PATH SEPP_CONFIG=/etc/sepp/sepp.toml PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /sepp
VOLUME ["/sepp/sepp-data", "/etc/sepp"]
EXPOSE 50051 9464 9465
# Ready, not only alive; who must know the difference asks with --service "".
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["sepp-trio", "health", "--addr", "127.0.0.1:50051"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/sepp/bin/entrypoint"]
