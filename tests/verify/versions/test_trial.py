"""The sandbox's trials on the one older release that CI builds; ``make versions`` tries all of them."""

import pytest
from verify.versions.trial import try_release

OLDER = "v1.34.4"
"""The release of ``.ci/run``'s second ``make e2e``: its new pods are gated by the webhook alone."""

RANDOM_PODS = 60


@pytest.mark.cluster
@pytest.mark.night
@pytest.mark.timeout(1800)
def test_every_promise_holds_on_an_older_release() -> None:
    """Slow: a cluster of another release, which is built once, and random pods."""
    seen = try_release(OLDER, RANDOM_PODS, older="", following="")
    assert "DISAGREE" not in seen.random_pods, seen
