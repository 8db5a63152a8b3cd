"""Images: their garbage collection, parallel pulls and who may use them.

Source: pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration,
pkg/kubelet/images/pullmanager/image_pull_policies.go:ValidateAllowlistImagesPatterns.
"""

import re
from collections.abc import Iterator

from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import duration, quote
from topomend.replay.startup.rules.limits import INVALID


def garbage_collection_thresholds(config: Configuration) -> Iterator[str]:
    """How full the disk is when images are removed, and how long they may be unused."""
    high, low = config.number("imageGCHighThresholdPercent"), config.number("imageGCLowThresholdPercent")
    high_name = "imageGCHighThresholdPercent (--image-gc-high-threshold)"
    low_name = "imageGCLowThresholdPercent (--image-gc-low-threshold)"
    for name, percent in ((high_name, high), (low_name, low)):
        if not 0 <= percent <= 100:
            yield INVALID + f"{name} {percent} must be between 0 and 100, inclusive"
    if low >= high:
        yield INVALID + f"{low_name} {low} must be less than {high_name} {high}"
    if config.number("imageMaximumGCAge") and not config.enabled("ImageMaximumGCAge"):
        yield (
            INVALID + "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge"
        )


def garbage_collection_ages(config: Configuration) -> Iterator[str]:
    """How old images become."""
    least, most = config.number("imageMinimumGCAge"), config.number("imageMaximumGCAge")
    if config.minor >= 36 and least < 0:
        yield INVALID + f"imageMinimumGCAge {duration(least)} must not be negative"
    if most < 0:
        yield INVALID + f"imageMaximumGCAge {duration(most)} must not be negative"
    if 0 < most <= least:
        yield (INVALID + f"imageMaximumGCAge {duration(most)} must be greater than imageMinimumGCAge {duration(least)}")


def parallel_pulls(config: Configuration) -> Iterator[str]:
    """How many images are pulled at once."""
    pulls = config.given_number("maxParallelImagePulls")
    if pulls is not None and pulls < 1:
        yield INVALID + f"maxParallelImagePulls {pulls} must be a positive number"
    if pulls is not None and pulls > 1 and config.flag("serializeImagePulls"):
        yield (
            INVALID + "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls "
            "(--serialize-image-pulls) is set to false"
        )


_ALLOWLISTED = "NeverVerifyAllowlistedImages"
_POLICIES = ("NeverVerify", "NeverVerifyPreloadedImages", _ALLOWLISTED, "AlwaysVerify")


def credentials_verification(config: Configuration) -> Iterator[str]:
    """Which pods may use an image that others have pulled; since 1.33."""
    if config.minor < 33:
        return
    policy = config.text("imagePullCredentialsVerificationPolicy")
    patterns = config.texts("preloadedImagesVerificationAllowlist")
    if not config.enabled("KubeletEnsureSecretPulledImages"):
        yield from _without_verification(policy, patterns)
        return
    if policy not in _POLICIES:
        one, two, three, four = map(quote, _POLICIES)
        yield (
            INVALID + f"option {quote(policy)} specified for imagePullCredentialsVerificationPolicy. "
            f"Valid options are {one}, {two}, {three} or {four}"
        )
    yield from _allowlist(policy, patterns, config.minor)


def _without_verification(policy: str, patterns: list[str]) -> Iterator[str]:
    for name, given in (
        ("imagePullCredentialsVerificationPolicy", policy),
        ("preloadedImagesVerificationAllowlist", patterns),
    ):
        if given:
            yield (INVALID + f"`{name}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled")


def _allowlist(policy: str, patterns: list[str], minor: int) -> Iterator[str]:
    if patterns and policy != _ALLOWLISTED:
        yield (
            INVALID + "can't set `preloadedImagesVerificationAllowlist` if "
            f'`imagePullCredentialsVertificationPolicy` is not "{_ALLOWLISTED}"'
        )
        return
    wrong = next((why for pattern in patterns if (why := _wrong_pattern(pattern, minor))), "")
    if wrong:
        yield INVALID + f"invalid image pattern in `preloadedImagesVerificationAllowlist`: {wrong}"


_GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""unicode.IsSpace; Python takes four more letters for spaces."""


def _wrong_pattern(pattern: str, minor: int) -> str:
    if pattern != pattern.strip(_GO_SPACE):
        return f"leading/trailing spaces are not allowed: {pattern}"
    wildcard = pattern.endswith("/*")
    trimmed = pattern.removesuffix("*") if wildcard else pattern
    if not trimmed:
        return f"the supplied pattern is too short: {pattern}"
    if "*" in trimmed:
        return f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
    if wildcard:
        return "at least registry hostname is required" if len(trimmed) == 1 else ""
    return _wrong_image(pattern) if minor >= 37 else _wrong_normal_image(pattern)


# github.com/distribution/reference regexp.go
_WORD = "[a-z0-9]+"
_PATH = rf"{_WORD}(?:(?:[._]|__|[-]+){_WORD})*"
_REMOTE = rf"{_PATH}(?:/{_PATH})*"
_LABEL = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*[:][0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"((?:{_DOMAIN}/)?{_REMOTE})(?::([\w][\w.-]{{0,127}}))?(?:@({_DIGEST}))?", re.ASCII)
_NAME = re.compile(rf"(?:({_DOMAIN})/)?({_REMOTE})", re.ASCII)
_MAX_NAME = 255
_MAX_PATTERN = 4096
"""Letters of a pattern that is still judged. Longer ones are no image's name anyway: it has at most 255."""


def _wrong_image(image: str) -> str:
    failed = "failed to parse as an image name: "
    if len(image) > _MAX_PATTERN:
        return failed + "invalid reference format"
    matched = _REFERENCE.fullmatch(image)
    if matched is None:
        upper = _REFERENCE.fullmatch(image.lower()) is not None
        return failed + ("repository name must be lowercase" if upper else "invalid reference format")
    name, tag, digest = matched.groups()
    parts = _NAME.fullmatch(name)
    if len(parts[2] if parts else name) > _MAX_NAME:
        return failed + f"repository name must not be more than {_MAX_NAME} characters"
    if digest and (wrong := _wrong_digest(digest)):
        return failed + wrong
    return f"neither tag nor digest is accepted in an image reference: {image}" if tag or digest else ""


def _wrong_normal_image(image: str) -> str:
    """Before 1.37 the name must be the one that Docker makes of it (normalize.go:ParseNormalizedNamed)."""
    failed = "failed to parse as an image name: "
    if re.fullmatch("[a-f0-9]{64}", image):
        return f"{failed}invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
    domain, remainder = _split_domain(image)
    remote = remainder.partition(":")[0]
    if remote.lower() != remote:
        return f"{failed}invalid reference format: repository name ({remote}) must be lowercase"
    wrong = _wrong_image(f"{domain}/{remainder}")
    if wrong.startswith(failed):
        return wrong
    if wrong or f"{domain}/{remainder}" != image:
        return f"neither tag nor digest is accepted in an image reference: {image}"
    return ""


_DOCKER = "docker.io"


def _split_domain(name: str) -> tuple[str, str]:
    """normalize.go:splitDockerDomain."""
    first, slash, rest = name.partition("/")
    if not slash:
        return _DOCKER, f"library/{name}"
    if first == "index.docker.io":
        domain, remote = _DOCKER, rest
    elif first == "localhost" or "." in first or ":" in first or first.lower() != first:
        domain, remote = first, rest
    else:
        domain, remote = _DOCKER, name
    return domain, f"library/{remote}" if domain == _DOCKER and "/" not in remote else remote


_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


def _wrong_digest(digest: str) -> str:
    """github.com/opencontainers/go-digest digest.go:Validate."""
    algorithm, _, encoded = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None:
        known_form = re.fullmatch(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*", algorithm)
        return "unsupported digest algorithm" if known_form else "invalid checksum digest format"
    if len(encoded) != length:
        return "invalid checksum digest length"
    return "" if re.fullmatch("[0-9a-f]+", encoded) else "invalid checksum digest format"
