# The service with its embedded database. Nobody is let in without an access token, which its own container makes:
#   docker build -t offpolicy-monitor .
#   docker run -d --name monitor -p 127.0.0.1:8900:8900 -v offpolicy:/var/lib/offpolicy-monitor offpolicy-monitor
#   docker exec monitor offpolicy-monitor token create --scope admin --note me
# Tokens travel as they are: publish the port beyond this machine through a proxy that speaks TLS.

FROM python:3.11-slim AS build
# A further index for pip, e.g. one that holds a CPU build of torch: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
ENV PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY . .
RUN python -m pip wheel --no-deps --wheel-dir /dist .
RUN python -m venv /opt/offpolicy-monitor \
    && /opt/offpolicy-monitor/bin/python -m pip install "$(echo /dist/*.whl)[server,postgres]"

FROM python:3.11-slim
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
