"""The oldest release that topomend supports; all other tests run on the newest, ``make versions`` on those between."""

import pytest
from verify.versions.trial import try_release

OLDEST = "v1.30.14"

RANDOM_PODS = 60


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_every_promise_holds_on_the_oldest_release() -> None:
    """Slow: a cluster of another release, which is built once, a storm of half a minute, and random pods."""
    seen = try_release(OLDEST, RANDOM_PODS, older="", following="")
    assert "DISAGREE" not in seen.random_pods, seen
