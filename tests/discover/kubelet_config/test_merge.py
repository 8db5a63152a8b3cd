"""Drop-ins over the file, as kubelets of several releases merge them; the oracle of configurations tries many more."""

import pytest

from topomend.discover.documents.value import Members, Number
from topomend.discover.kubelet_config.fields import types_of
from topomend.discover.kubelet_config.merge import merged

VMODULE = Members((("filePattern", "a"), ("verbosity", Number("2"))))


@pytest.mark.parametrize("minor", [30, 31, 32, 37])
def test_a_struct_that_both_types_share_leaves_out_what_is_empty(minor: int) -> None:
    """LOGGING comes before the kubelet's own name of the field, which must not take back what it says."""
    drop_in = Members((("LOGGING", Members((("vmodule", [VMODULE]),))),))
    content, _ = merged({"logging": {"format": "text"}}, [drop_in], types_of(minor), minor)
    assert content["logging"]["vmodule"] == [{"filePattern": "a", "verbosity": 2}]
