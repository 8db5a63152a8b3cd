"""Which flags a kubelet knows, by its release; the oracle compares them in tests/verify/config_oracle."""

import pytest

from topomend.discover.kubelet_config.flag_names import flag_names, unknown_flags


def test_a_flag_that_no_kubelet_knows_has_its_last_words() -> None:
    assert list(unknown_flags({"cpu-manager-polcy": ["static"], "v": ["2"], "node-ip": ["10.0.0.1"]}, 37)) == [
        ("cpu-manager-polcy", "failed to parse kubelet flag: unknown flag: --cpu-manager-polcy")
    ]


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("pod-infra-container-image", 30, 34), ("containerd", 30, 36), ("fail-cgroupv1", 31, 38), ("node-labels", 30, 38)],
)
def test_a_flag_is_known_to_the_releases_that_have_it(name: str, first: int, last: int) -> None:
    assert [minor for minor in range(30, 39) if name in flag_names(minor)] == list(range(first, last + 1))
