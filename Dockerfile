# The service with its embedded database. Nobody is let in without an access token, which its own container makes:
#   docker build -t offpolicy-monitor .
#   docker run -d --name monitor -p 127.0.0.1:8900:8900 -v offpolicy:/var/lib/offpolicy-monitor offpolicy-monitor
#   docker exec monitor offpolicy-monitor token create --scope admin --note me
# Tokens travel as they are: publish the port beyond this machine through a proxy that speaks TLS.
#
# Build arguments:
#   VARIANT        cpu, or cuda: a torch for CUDA 13.0, to be run with --gpus all
#   TORCH_INDEX    where torch comes from; unless it is given, PyTorch's own index for the variant
#   PIP_INDEX_URL  where everything else comes from; the hashes stay
#   BASE           a Python 3.11 on Debian 12; by its digest, or of a registry of your own

ARG BASE=python:3.11-slim-bookworm
ARG VARIANT=cpu

FROM ${BASE} AS build
ARG VARIANT
ARG TORCH_INDEX
ARG PIP_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_PYTHON=/opt/offpolicy-monitor
WORKDIR /src
# Without pip and what comes with it: what is installed is what is locked. The pip of the base image fills it.
RUN python -m venv --without-pip /opt/offpolicy-monitor
COPY deploy/locks deploy/locks
COPY constraints.txt .
# Everything but torch by its hash; what a CUDA build of torch brings is locked too, but for that build.
RUN case "$VARIANT" in cpu) locks="service" ;; cuda) locks="service cuda" ;; \
        *) echo "VARIANT is cpu or cuda, not $VARIANT" >&2; exit 1 ;; esac \
    && for lock in $locks; do \
        python -m pip install --no-deps --require-hashes --only-binary :all: --requirement "deploy/locks/$lock.txt" || exit 1; \
    done
# Its builds differ by index, so it has no one hash; its version is the one that the tests ran with.
RUN case "$VARIANT" in cuda) build=cu130 ;; *) build=cpu ;; esac \
    && python -m pip install --no-deps --only-binary :all: --constraint constraints.txt \
        --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/$build}" torch
COPY . .
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && python -m pip install --no-deps --no-index /dist/*.whl \
    && python -m pip check

FROM ${BASE}
COPY --from=build /opt/offpolicy-monitor /opt/offpolicy-monitor
RUN useradd --system --uid 10001 --home-dir /var/lib/offpolicy-monitor --create-home offpolicy
# What is compiled after the first start lies in the volume, under .cache, and outlives the container.
# A browser reaches the published port as localhost. Other names under which the service is reached, such as the name of
# its container, go into OFFPOLICY_TRUSTED_HOSTS (separated by commas, * for any).
ENV PATH=/opt/offpolicy-monitor/bin:$PATH \
    OFFPOLICY_AUTH=required \
    OFFPOLICY_HOST=0.0.0.0 \
    OFFPOLICY_PORT=8900 \
    OFFPOLICY_TRUSTED_HOSTS=localhost \
    OFFPOLICY_DATABASE_URL=sqlite:////var/lib/offpolicy-monitor/offpolicy.db
USER 10001
VOLUME /var/lib/offpolicy-monitor
EXPOSE 8900
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", \
    "import os, ssl, urllib.request as u; s = bool(os.environ.get('OFFPOLICY_SSL_CERTFILE')); \
u.urlopen('http' + 's' * s + '://127.0.0.1:' + os.environ['OFFPOLICY_PORT'] + '/healthz', timeout=4, \
context=ssl._create_unverified_context() if s else None)"]
CMD ["sh", "-c", "offpolicy-monitor db upgrade && exec offpolicy-monitor serve"]
