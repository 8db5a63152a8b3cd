"""The kubelet's own logs, metrics and traces.

Source: component-base logs/api/v1/options.go:Validate, metrics/options.go:ValidateShowHiddenMetricsVersion and
tracing/api/v1/config.go:ValidateTracingConfiguration, which ValidateKubeletConfiguration calls.
"""

import json
import re
from collections.abc import Iterator

from topomend.replay.startup import quantity
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import InvalidText, duration, duration_of, quote
from topomend.replay.startup.rules.limits import INVALID
from topomend.replay.startup.url import InvalidURL, scheme_of

_MAX_VERBOSITY = (1 << 31) - 1


def logging(config: Configuration) -> Iterator[str]:
    """The kubelet's logs. It looks at them first, before any other field."""
    # ToAggregate drops errors that say the same.
    yield from dict.fromkeys(_logging(config.struct("logging")))


def _logging(logs: Configuration) -> Iterator[str]:
    yield from _flush_frequency(logs)
    yield from _format(logs)
    if logs.number("verbosity") > _MAX_VERBOSITY:
        yield f"logging.verbosity: Invalid value: {_uint32(logs)}: Must be <= {_MAX_VERBOSITY}"
    yield from _vmodule(logs)
    for name in ("text", "json"):
        yield from _routing(logs.struct("options").struct(name), f"logging.options.{name}")


def _flush_frequency(logs: Configuration) -> Iterator[str]:
    """``flushFrequency`` is text as in the file, or nanoseconds."""
    given = logs.content.get("flushFrequency")
    if logs.minor < 35 or given is None:
        return
    nanoseconds = _nanoseconds(given)
    if nanoseconds <= 0:
        shown = json.dumps(duration(nanoseconds)) if isinstance(given, str) else str(nanoseconds)
        yield f"logging.flushFrequency: Invalid value: {shown}: Must be greater than zero"


def _nanoseconds(given: object) -> int:
    if isinstance(given, int):
        return given
    try:
        return duration_of(str(given)) or 1  # Zero has a default.
    except InvalidText:  # The loader has refused it.
        return 1


def _format(logs: Configuration) -> Iterator[str]:
    name = logs.text("format")
    if name not in ("text", "json"):
        yield f"logging.format: Invalid value: {quote(name)}: Unsupported log format"
    elif name == "json" and not logs.enabled("LoggingBetaOptions"):
        yield "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"


def _vmodule(logs: Configuration) -> Iterator[str]:
    items = logs.structs("vmodule")
    if items and logs.text("format") not in ("", "text"):
        yield "logging.vmodule: Forbidden: Only supported for text log format"
    for index, item in enumerate(items):
        pattern, where = item.text("filePattern"), f"logging.vmodule[{index}]"
        if not pattern:
            yield f"{where}: Required value: File pattern must not be empty"
        if re.search("[=,]", pattern):
            yield f"{where}: Invalid value: {quote(pattern)}: File pattern must not contain equal sign or comma"
        if item.number("verbosity") > _MAX_VERBOSITY:
            yield f"{where}: Invalid value: {_uint32(item)}: Must be <= {_MAX_VERBOSITY}"


def _uint32(item: Configuration) -> str:
    """A verbosity as apimachinery's field errors show it: as Go syntax before 1.34, as JSON since."""
    number = item.number("verbosity")
    return f"{number:#x}" if item.minor < 34 else str(number)


def _routing(options: Configuration, where: str) -> Iterator[str]:
    if options.enabled("LoggingAlphaOptions"):
        return
    if options.flag("splitStream"):
        yield f"{where}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"
    if not _is_zero(options.content.get("infoBufferSize")):
        yield f"{where}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled"


def _is_zero(size: object) -> bool:
    try:
        return size is None or quantity.parse(str(size)).nano == 0
    except quantity.InvalidQuantity:  # The loader has refused it.
        return True


def hidden_metrics(config: Configuration) -> Iterator[str]:
    """Hidden metrics are shown of the release before only."""
    given, before = config.text("showHiddenMetricsForVersion"), f"1.{config.minor - 1}"
    if given in ("", before):
        return
    if config.minor >= 36:
        yield (
            "invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: "
            f"{quote(given)}: must be omitted or have the value '{before}'; only the previous minor version is allowed"
        )
    else:
        yield (
            f"--show-hidden-metrics-for-version must be omitted or have the value '{before}'. "
            "Only the previous minor version is allowed"
        )


_MAX_RATE = 1_000_000


def tracing(config: Configuration) -> Iterator[str]:
    """Where traces are sent, and how many."""
    if not config.has("tracing"):
        return
    if config.minor < 34 and not config.enabled("KubeletTracing"):
        yield INVALID + "tracing should not be configured if KubeletTracing feature flag is disabled."
        return
    traces = config.struct("tracing")
    rate = traces.number("samplingRatePerMillion")
    where = f"tracing.samplingRatePerMillion: Invalid value: {rate}: "
    if rate < 0:
        yield where + "sampling rate must be positive"
    if rate > _MAX_RATE:
        yield where + "sampling rate per million must be less than or equal to one million"
    if isinstance(traces.content.get("endpoint"), str):
        yield from _endpoint(traces.text("endpoint"))


def _endpoint(text: str) -> Iterator[str]:
    address = text if "//" in text else "dns://" + text
    where = f"tracing.endpoint: Invalid value: {quote(address)}: "
    try:
        scheme = scheme_of(address)
    except InvalidURL as error:
        yield f"{where}{error}"
        return
    if scheme not in ("dns", "unix", "unix-abstract"):
        yield (
            where + f"unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  "
            "See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        )
