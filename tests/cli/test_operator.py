"""The operator's flags: names and variables are an interface, their values arrive in the settings."""

from dataclasses import fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from topomend.cli.flags.setting_flags import setting_flags
from topomend.cli.main import main
from topomend.reconcile.settings import Settings

FLAGS = {
    "--workers": "3",
    "--mode": "observe",
    "--max-attempts": "7",
    "--relaunch-rate": "1.5",
    "--relaunch-burst": "9",
    "--relist-seconds": "42",
    "--record-hours": "48",
    "--health-address": "127.0.0.1:1",
    "--metrics-address": "127.0.0.1:2",
    "--namespace": "elsewhere",
    "--service-account": "somebody",
    "--webhook-address": "127.0.0.1:3",
    "--webhook-url": "https://127.0.0.1:4",
    "--gating-service": "acme-topomend-gating",
    "--defragment-minutes": "7",
    "--defragment-moves": "2",
    "--defragment-rate": "12",
    "--defragment-threshold": "25",
    "--defragment-priority": "100",
    "--identity": "me",
    "--pod-name": "operator-1",
    "--pod-uid": "8f1c",
}
GIVEN = Settings(
    3,
    "observe",
    7,
    1.5,
    9,
    42.0,
    48.0,
    "127.0.0.1:1",
    "127.0.0.1:2",
    "elsewhere",
    "somebody",
    "127.0.0.1:3",
    "https://127.0.0.1:4",
    "acme-topomend-gating",
    startup_taint=True,
    placeholders=True,
    claims=True,
    defragment=True,
    defragment_minutes=7.0,
    defragment_moves=2,
    defragment_rate=12.0,
    defragment_threshold=25.0,
    defragment_priority=100,
    kueue=True,
    leader_elect=True,
    identity="me",
    pod_name="operator-1",
    pod_uid="8f1c",
)


SWITCHES = tuple(
    f"TOPOMEND_{name}" for name in ("CLAIMS", "DEFRAGMENT", "KUEUE", "LEADER_ELECT", "PLACEHOLDERS", "STARTUP_TAINT")
)


def read(*arguments: str, **environment: str) -> Settings:
    """The settings that these flags and variables give."""
    settings: list[Settings] = []

    @click.command()
    @setting_flags
    def command(**values: Any) -> None:
        settings.append(Settings(**values))

    result = CliRunner().invoke(command, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return settings[0]


def test_without_flags_the_settings_are_their_defaults() -> None:
    assert read() == Settings()


def test_every_setting_has_a_flag() -> None:
    switches = ("--startup-taint", "--placeholders", "--claims", "--defragment", "--kueue", "--leader-elect")
    assert read(*switches, *(f"{flag}={text}" for flag, text in FLAGS.items())) == GIVEN
    assert all(getattr(GIVEN, setting.name) != setting.default for setting in fields(Settings))
    assert GIVEN.record_seconds == 48 * 3600


def test_every_flag_has_an_environment_variable() -> None:
    variables = {f"TOPOMEND_{flag[2:].upper().replace('-', '_')}": text for flag, text in FLAGS.items()}
    assert read(**variables, **dict.fromkeys(SWITCHES, "true")) == GIVEN
    assert read("--no-leader-elect", TOPOMEND_LEADER_ELECT="true") == Settings()


def test_the_operators_pod_is_known_by_the_downward_apis_variables() -> None:
    assert read(POD_NAME="operator-1", POD_UID="8f1c") == Settings(pod_name="operator-1", pod_uid="8f1c")


def test_an_operator_that_observes_is_told_that_it_takes_no_startup_taint_off() -> None:
    result = CliRunner().invoke(main, ["operator", "--mode=observe", "--startup-taint"])
    assert result.exit_code == 2
    assert "--startup-taint needs --mode relaunch" in result.output


def test_an_operator_that_observes_is_told_that_it_moves_no_pod() -> None:
    result = CliRunner().invoke(main, ["operator", "--mode=observe", "--defragment"])
    assert result.exit_code == 2
    assert "--defragment needs --mode relaunch" in result.output


def test_an_operator_that_observes_is_told_that_it_answers_no_admission_check() -> None:
    result = CliRunner().invoke(main, ["operator", "--mode=observe", "--kueue"])
    assert result.exit_code == 2
    assert "--kueue needs --mode relaunch" in result.output


@pytest.mark.parametrize(
    "argument", ["--workers=0", "--mode=watch", "--relaunch-rate=0", "--record-hours=1", "--health-address=here"]
)
def test_a_value_out_of_bounds_is_bad_input_that_names_the_flag(argument: str) -> None:
    result = CliRunner().invoke(main, ["operator", argument])
    assert result.exit_code != 0
    assert argument.partition("=")[0] in f"{result.output}{result.exception}"
