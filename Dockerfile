# One image for the agent and the operator: docker build -t topomend:v0.1.0 .   (docs/contribute/image.md tells the rest)
# To pin the base by digest: --build-arg PYTHON=python:3.13-slim@sha256:...
ARG PYTHON=python:3.13-slim

# For a foreign processor QEMU has the RUN steps of base and version to do, a second each. All others are this machine's.
FROM ${PYTHON} AS base
# Nothing is installed here, so nobody needs pip. (libudev, which looks names up and tells of devices, is apt's as well.)
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip /usr/local/lib/python3*/site-packages/pip*

FROM base AS version
RUN python -c "import platform; print(platform.python_version())" > /python.version

# Byte code is the same for every processor, and wheels for a foreign one are unpacked without being run.
FROM --platform=${BUILDPLATFORM} ${PYTHON} AS builder
# Compiled files are the same at each build only where sets are in the same order; all else is left to compileall below.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PYTHONHASHSEED=0
RUN python -m venv /opt/build && python -m venv --without-pip /opt/topomend
WORKDIR /src
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN /opt/build/bin/pip install --require-hashes --requirement requirements/build.lock
ARG TARGETARCH
RUN case "${TARGETARCH:=$(dpkg --print-architecture)}" in amd64) machine=x86_64;; arm64) machine=aarch64;; \
    *) echo "topomend's packages have no wheels for $TARGETARCH: build for amd64 or arm64" >&2; exit 1;; esac \
 && cd /opt/topomend/lib/python3*/site-packages \
 && /opt/build/bin/pip install --require-hashes --no-compile --report /installed.json --requirement /src/requirements/runtime.lock \
    --target "$PWD" --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
 && rm -r bin
# The Kubernetes client is 70 MB of sources and 45 MB of byte code: its byte code takes the place of its sources.
# No file is compared with its source when it is imported, so their times do not matter.
RUN cd /opt/topomend/lib/python3*/site-packages \
 && python -m compileall -q -b --invalidation-mode unchecked-hash "$PWD/kubernetes" \
 && find kubernetes -name '*.py' -delete \
 && python -m compileall -q --invalidation-mode unchecked-hash "$PWD" \
 && rm -r /opt/topomend/bin/[Aa]ctivate*
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install.yaml deploy/
COPY operator operator
# Our own files lie apart, for a layer of their own: a new version of topomend leaves the libraries' layer as it is.
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /wheel \
 && /opt/build/bin/pip --python /opt/topomend/bin/python install --no-deps --no-index --no-compile --no-warn-script-location --root /own /wheel/*.whl \
 && python -m compileall -q -s /own -p / --invalidation-mode unchecked-hash /own

# The names of PCI devices: of udev's hardware database the part about PCI, as 5 MB that are mapped and hardly read.
FROM --platform=${BUILDPLATFORM} ${PYTHON} AS names
RUN apt-get update \
 && apt-get install --yes --no-install-recommends udev \
 && mkdir --parents /names/etc/udev/hwdb.d \
 && cp /usr/lib/udev/hwdb.d/20-pci-*.hwdb /names/etc/udev/hwdb.d/ \
 && systemd-hwdb --root=/names --strict update \
 && dpkg-query --show --showformat='${Version}' udev > /names/udev.version

# What is in the image: the base's Debian packages, what was installed from requirements/runtime.lock, udev's names.
FROM builder AS sbom
ARG SOURCE_DATE_EPOCH
COPY --from=names /names/udev.version /names/
COPY --from=version /python.version /base/
COPY --from=base /etc/debian_version /base/etc/
COPY --from=base /usr/share/doc /base/usr/share/doc
COPY --from=base /var/lib/apt /base/var/lib/apt
COPY --from=base /var/lib/dpkg /base/var/lib/dpkg
COPY deploy/image/sbom.py deploy/image/
RUN cp --recursive /own/opt / \
 && /opt/build/bin/cyclonedx-py environment --pyproject pyproject.toml --sv 1.6 --output-reproducible --output-file /python.json /opt/topomend/bin/python \
 && if ! /opt/build/bin/debsbom generate --sbom-type cdx --cdx-schema-version 1.6 --with-licenses --root /base \
      --distro-version "$(cat /base/etc/debian_version)" --out /debian 2> /debsbom.log; then cat /debsbom.log >&2; exit 1; fi \
 && /opt/build/bin/python deploy/image/sbom.py --python /python.json --debian /debian.cdx.json --wheels /installed.json \
    --base-python /base/python.version --names /names/udev.version --version "$(/opt/topomend/bin/python -c "import topomend; print(topomend.__version__)")" --output /sbom.cdx.json

FROM base
COPY --from=names /names/etc/udev/hwdb.bin /etc/udev/hwdb.bin
COPY --from=builder /opt/topomend /opt/topomend
COPY --from=builder /own/opt/topomend /opt/topomend
COPY --from=sbom /sbom.cdx.json /opt/topomend/sbom.cdx.json
ENV PATH=/opt/topomend/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PYTHON
ARG VERSION=v0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="topomend" \
      org.opencontainers.image.description="Explains pods that a kubelet refused for their NUMA topology, and gets them running on a node that admits them." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON}"
# The agent alone runs as 0, by its DaemonSet: the kubelet's socket is root's.
USER 65532:65532
ENTRYPOINT ["topomend"]
