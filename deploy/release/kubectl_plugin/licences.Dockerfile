# The licences of the libraries that are linked into the plugin's Python, as Debian's packages of the same libraries have
# them: deploy/release/kubectl_plugin/licences.py names the packages. Nothing of it is in an image.
ARG PYTHON=python:3.13-slim

FROM --platform=${BUILDPLATFORM} ${PYTHON} AS packages
ARG PACKAGES
WORKDIR /packages
RUN apt-get update \
 && apt-get download ${PACKAGES} \
 && for package in ${PACKAGES}; do \
      mkdir --parents "/licences/$package" "/unpacked/$package" \
      && dpkg-deb --extract "$package"_*.deb "/unpacked/$package" \
      && cp "/unpacked/$package/usr/share/doc/$package/copyright" "/licences/$package/" || exit 1; \
    done

FROM scratch
COPY --from=packages /licences /licences
