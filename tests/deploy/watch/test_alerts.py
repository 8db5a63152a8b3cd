"""Each alert fires when it must and is silent when it must be, as Prometheus' own promtool evaluates the kept rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from deploy.manifests import ROOT
from deploy.watch.alerts import ALERTS, DAY, Alert
from deploy.watch.kept import RULES
from verify.prometheus.programs import promtool

Series = Mapping[str, str]
"""Values of each series, one every 30 s, as promtool writes them: ``0x4`` is 0 five times, ``0+30x4`` counts up."""

POD, OTHER = '{job="topomend",instance="10.0.0.1:9400"}', '{job="topomend",instance="10.0.0.2:9400"}'


@dataclass(frozen=True)
class Case:
    """What is scraped while the alert must fire, and while it must not, and when that is asked."""

    fires: Series
    silent: Series
    at: str


def _of(name: str, fires: str, silent: str, at: str) -> Case:
    metric = f"topomend_operator_{name}{POD}"
    return Case({metric: fires}, {metric: silent}, at)


def _nodes(values: str, *, leads: str) -> Series:
    labels = 'job="topomend",instance="10.0.0.1:9400",pool="gpu",state="unknown"'
    return {f"topomend_operator_pool_nodes{{{labels}}}": values, f"topomend_operator_leads{POD}": leads}


def _duty(values: str, *, leads: str) -> Series:
    name = "topomend_operator_duty_last_success_timestamp_seconds"
    labels = 'job="topomend",instance="10.0.0.1:9400",duty="preemption"'
    return {f"{name}{{{labels}}}": values, f"topomend_operator_leads{POD}": leads}


CASES = {
    "TopomendPodRefused": _of("refused_pods_total", "0 0 1x4", "0x20", "60s"),
    "TopomendRefusedPodWaits": _of("oldest_relaunch_seconds", "0+30x30", "0+15x30", "14m"),
    "TopomendGatedThoughItFits": _of("gated_though_fits_seconds", "0+30x50", "0+15x50", "20m"),
    "TopomendAgentSilent": Case(_nodes("1x20", leads="1x20"), _nodes("1x6 0x14", leads="1x20"), "8m"),
    "TopomendReplayMismatch": _of("replay_disagreements_total", "0x3 1x20", "7x20", "5m"),
    "TopomendOperatorAway": Case(
        {f"topomend_operator_leads{POD}": "0x20", f"topomend_operator_leads{OTHER}": "0x20"},
        {f"topomend_operator_leads{POD}": "0x20", f"topomend_operator_leads{OTHER}": "1x20"},
        "5m",
    ),
    "TopomendDutyStuck": Case(_duty("0x40", leads="1x40"), _duty("0+30x40", leads="1x40"), "10m"),
    "TopomendBrakeHeld": _of("oldest_brake_seconds", "0+30x150", "0+30x100 0x50", "70m"),
    "TopomendCertificateEnds": _of(
        "certificate_expiry_timestamp_seconds", f"{13 * DAY}x200", f"{121 * DAY}x200", "90m"
    ),
}

SILENT_TOO: Mapping[str, Sequence[Series]] = {
    "TopomendOperatorAway": [{f"topomend_operator_leads{POD}": "0x2 1x20"}],
    "TopomendDutyStuck": [_duty("0x40", leads="0x40")],
    "TopomendCertificateEnds": [{f"topomend_operator_certificate_expiry_timestamp_seconds{POD}": "0x200"}],
    "TopomendAgentSilent": [_nodes("1x20", leads="0x20")],
    "TopomendReplayMismatch": [{}],
}
"""Further cases: a change of leaders, standbys, an operator that issues no certificate, nothing scraped at all."""


def evaluated(folder: Path, alert: str, series: Series, at: str, *, fires: bool) -> str:
    """What promtool says where the alert does not do as expected; empty where it does."""
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if fires else []
    test = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": at, "exp_samples": samples}],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [test]}))
    done = promtool("test", "rules", str(path))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert [alert.name for alert in ALERTS] == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_must(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    assert evaluated(tmp_path, name, case.fires, case.at, fires=True) == ""
    assert "got:" in evaluated(tmp_path, name, case.fires, case.at, fires=False)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_is_silent_when_it_must_be(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    for series in (case.silent, *SILENT_TOO.get(name, ())):
        assert evaluated(tmp_path, name, series, case.at, fires=False) == ""


def test_no_operator_at_all_is_an_operator_that_is_away(tmp_path: Path) -> None:
    assert evaluated(tmp_path, "TopomendOperatorAway", {}, "5m", fires=True) == ""


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_leads_to_its_runbook(alert: Alert) -> None:
    page, _, anchor = alert.runbook.partition("#")
    headings = [line[3:].lower() for line in (ROOT / page).read_text().splitlines() if line.startswith("## ")]
    assert anchor in headings
