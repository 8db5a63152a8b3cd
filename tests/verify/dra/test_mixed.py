"""A smaller sister of ``make dra``: some twenty random pods with claims on real kubelets."""

import pytest
from tests.seeds import SEED
from verify.dra.mixed import rounds


@pytest.mark.cluster
def test_the_alignment_of_random_pods_with_claims_is_told_as_kubelets_and_claims_have_it() -> None:
    tried = list(rounds(SEED, 20))
    assert [fault for each in tried for fault in each.faults] == []
    assert sum(each.running for each in tried) >= 20
