# One image for the agent and the operator: docker build -t topomend:v0.1.0 .
# To pin the base by digest: --build-arg PYTHON=python:3.13-slim@sha256:...
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/build && python -m venv --without-pip /opt/topomend
WORKDIR /src
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN /opt/build/bin/pip install --require-hashes --requirement requirements/build.lock \
 && /opt/build/bin/pip --python /opt/topomend/bin/python install --require-hashes --requirement requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install.yaml deploy/
COPY operator operator
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /wheel \
 && /opt/build/bin/pip --python /opt/topomend/bin/python install --no-deps --no-index --compile /wheel/*.whl

# The names of PCI devices: of udev's hardware database the part about PCI, as 5 MB that are mapped and hardly read.
FROM ${PYTHON} AS names
RUN apt-get update \
 && apt-get install --yes --no-install-recommends udev \
 && mkdir --parents /names/etc/udev/hwdb.d \
 && cp /usr/lib/udev/hwdb.d/20-pci-*.hwdb /names/etc/udev/hwdb.d/ \
 && systemd-hwdb --root=/names --strict update

FROM ${PYTHON}
# libudev looks the names up, and tells when devices come and go.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libudev1 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=names /names/etc/udev/hwdb.bin /etc/udev/hwdb.bin
COPY --from=builder /opt/topomend /opt/topomend
ENV PATH=/opt/topomend/bin:$PATH PYTHONUNBUFFERED=1
# The agent alone runs as 0, by its DaemonSet: the kubelet's socket is root's.
USER 65532:65532
ENTRYPOINT ["topomend"]
