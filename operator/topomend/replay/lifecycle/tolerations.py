"""Which taints a pod tolerates.

Source: api/core/v1/toleration.go:ToleratesTaint, component-helpers/scheduling/corev1/helpers.go.
"""

from collections.abc import Callable, Iterable

from topomend.model.nodes.node import Taint
from topomend.model.pods.scheduling import Toleration
from topomend.replay.lifecycle.int64 import parse_int

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"Lt": int.__lt__, "Gt": int.__gt__}


def tolerates(tolerations: Iterable[Toleration], taint: Taint, *, compares: bool = False) -> bool:
    """Whether one of the tolerations tolerates the taint.

    ``compares``: the operators Lt and Gt count (feature gate TaintTolerationComparisonOperators).
    """
    return any(_tolerates(toleration, taint, compares) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint, compares: bool) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if compares and toleration.operator in _COMPARISONS:
        return _compares(toleration, taint)
    return toleration.operator == "Exists"


def _compares(toleration: Toleration, taint: Taint) -> bool:
    number, bound = parse_int(taint.value), parse_int(toleration.value)
    return number is not None and bound is not None and _COMPARISONS[toleration.operator](number, bound)
