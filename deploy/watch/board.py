"""The board for Grafana: a panel for each question that its reader has, most urgent first.

Grafana's own library writes the JSON. The datasource is a variable, so that the board can be imported anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef

UID = "topomend"

_DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _WIDTH = 8, 8

_LEADER = "topomend_operator_leads == 1"
_SHORT, _SECONDS, _SHARE, _PER_SECOND = "short", "s", "percentunit", "reqps"


@dataclass(frozen=True)
class Query:
    """``expression`` in Prometheus' language; ``legend`` names each series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A question, its answer's unit as Grafana calls it, and the queries. ``now``: only the newest value matters."""

    title: str
    meaning: str
    unit: str
    queries: tuple[Query, ...]
    now: bool = False


@dataclass(frozen=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


def _of_pools(amount: str, resource: str = "") -> str:
    matcher = f'{{resource="{resource}"}}' if resource else ""
    return f"max by (pool, resource) (topomend_operator_pool_{amount}{matcher})"


ROWS = (
    Row(
        "Does it work?",
        (
            Panel(
                "Operators that act",
                "One, or all that observe.",
                _SHORT,
                (Query("sum(topomend_operator_leads)"),),
                now=True,
            ),
            Panel(
                "Nodes by state",
                "Nodes whose topology is known, is not known any more, or that have no agent.",
                _SHORT,
                (Query("sum by (state) (max by (pool, state) (topomend_operator_pool_nodes))", "{{state}}"),),
                now=True,
            ),
            Panel(
                "Duties without success",
                "Seconds since each duty of the leading operator was last done.",
                _SECONDS,
                (
                    Query(
                        "max by (duty) ((time() - topomend_operator_duty_last_success_timestamp_seconds) "
                        f"and on (job, instance) ({_LEADER}))",
                        "{{duty}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Refusals",
        (
            Panel(
                "Pods refused",
                "Pods that a kubelet refused for their topology, in five minutes.",
                _SHORT,
                (Query("sum(increase(topomend_operator_refused_pods_total[5m]))", "refused"),),
            ),
            Panel(
                "What they lacked",
                "The resources at fault; a pod that lacked two counts in both.",
                _SHORT,
                (Query("sum by (resource) (topomend_operator_refusal_causes_total)", "{{resource}}"),),
            ),
            Panel(
                "Relaunches",
                "Relaunches that ended, by outcome.",
                _SHORT,
                (Query("sum by (outcome) (topomend_operator_relaunches_total)", "{{outcome}}"),),
            ),
            Panel(
                "From refusal to ungating",
                "Nine of ten relaunches were as fast.",
                _SECONDS,
                (
                    Query(
                        "histogram_quantile(0.9, sum by (le) (topomend_operator_relaunch_latency_seconds_bucket))",
                        "90 %",
                    ),
                ),
            ),
            Panel(
                "Errors of replay",
                "Refusals that replay had not predicted: 0 is what is promised.",
                _SHORT,
                (Query("sum by (kind) (topomend_operator_replay_disagreements_total)", "{{kind}}"),),
            ),
            Panel(
                "Oldest open relaunch",
                "How long a refused pod has waited to run again, at most.",
                _SECONDS,
                (Query("max(topomend_operator_oldest_relaunch_seconds)", "oldest"),),
            ),
        ),
    ),
    Row(
        "Pods that wait",
        (
            Panel(
                "Waiting for a node",
                "Pods that no node admits now.",
                _SHORT,
                (Query("max(topomend_operator_relaunches_waiting)", "pods"),),
            ),
            Panel(
                "Gated for how long",
                "The oldest gated pod, and the one that has waited longest since a node would admit it.",
                _SECONDS,
                (
                    Query("max(topomend_operator_oldest_gate_seconds)", "oldest"),
                    Query("max(topomend_operator_gated_though_fits_seconds)", "though it fits"),
                ),
            ),
            Panel(
                "Braked controllers",
                "Controllers whose new pods are gated, and for how long one has been.",
                _SHORT,
                (
                    Query("max(topomend_operator_braked_controllers)", "controllers"),
                    Query("max(topomend_operator_oldest_brake_seconds) / 60", "minutes"),
                ),
            ),
        ),
    ),
    Row(
        "Room",
        (
            Panel(
                "Free CPUs",
                "Free for exclusive use in each pool. Of no use to a pod that wants more than one NUMA node has.",
                _SHORT,
                (Query(_of_pools("free", "cpu"), "{{pool}}"),),
            ),
            Panel(
                "Largest admissible request",
                "The most CPUs that are free on one NUMA node of each pool.",
                _SHORT,
                (Query(_of_pools("largest_admissible", "cpu"), "{{pool}}"),),
            ),
            Panel(
                "Free, by resource",
                "Bytes or devices that are free in each pool.",
                _SHORT,
                (Query(_of_pools("free"), "{{pool}} {{resource}}"),),
            ),
            Panel(
                "Fragmentation",
                "The share of what is free that the pods which typically come cannot use.",
                _SHARE,
                (Query(_of_pools("fragmentation_ratio"), "{{pool}} {{resource}}"),),
            ),
            Panel(
                "Aligned",
                "The share of what containers hold that is on one NUMA node.",
                _SHARE,
                (Query(f"{_of_pools('aligned')} / {_of_pools('held')}", "{{pool}} {{resource}}"),),
            ),
            Panel(
                "Containers not on one NUMA node",
                "Of those that hold exclusive CPUs, pinned memory or devices.",
                _SHORT,
                (Query('sum by (alignment) (topomend_agent_containers{alignment!="numa-node"})', "{{alignment}}"),),
            ),
            Panel(
                "Idle CPUs, by kind",
                "The idle share of exclusive, shared and reserved CPUs.",
                _SHARE,
                (
                    Query(
                        'sum by (pool) (rate(topomend_agent_numa_cpu_seconds_total{mode="idle"}[5m])) '
                        "/ sum by (pool) (rate(topomend_agent_numa_cpu_seconds_total[5m]))",
                        "{{pool}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Cost",
        (
            Panel(
                "Replay, 90 %",
                "How long it takes to ask all nodes for one pod.",
                _SECONDS,
                (
                    Query(
                        "histogram_quantile(0.9, sum by (le) (topomend_operator_replay_duration_seconds_bucket))",
                        "90 %",
                    ),
                ),
            ),
            Panel(
                "Memory",
                "Of operators and agents, the largest of each.",
                "bytes",
                (
                    Query(
                        "max(process_resident_memory_bytes and on (job, instance) topomend_operator_leads)", "operator"
                    ),
                    Query(
                        "max(process_resident_memory_bytes and on (job, instance) topomend_agent_build_info)", "agent"
                    ),
                ),
            ),
            Panel(
                "CPU",
                "Of operators and agents, the most of each.",
                _SHORT,
                (
                    Query(
                        "max(rate(process_cpu_seconds_total[5m]) and on (job, instance) topomend_operator_leads)",
                        "operator",
                    ),
                    Query(
                        "max(rate(process_cpu_seconds_total[5m]) and on (job, instance) topomend_agent_build_info)",
                        "agent",
                    ),
                ),
            ),
        ),
    ),
)


def queries() -> Sequence[str]:
    """The expression of every query of the board."""
    return [query.expression for row in ROWS for panel in row.panels for query in panel.queries]


def board_json() -> str:
    """The board as Grafana imports it."""
    variable = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    board = dashboard.Dashboard("topomend").uid(UID).tags(["topomend", "numa", "kubernetes"])
    board = board.description("Generated from deploy/watch/board.py by make generate.")
    board = board.time("now-6h", "now").refresh("1m").with_variable(variable)
    for row in ROWS:
        board = board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            board = board.with_panel(_built(panel))
    return JSONEncoder(sort_keys=True, indent=1).encode(board.build()) + "\n"


def _built(panel: Panel) -> stat.Panel | timeseries.Panel:
    made = _newest() if panel.now else _over_time()
    made = made.title(panel.title).description(panel.meaning).unit(panel.unit).datasource(_DATASOURCE)
    made = made.height(_HEIGHT).span(_WIDTH)
    for letter, query in zip("ABC", panel.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(letter)
        made = made.with_target(target.datasource(_DATASOURCE))
    return made


def _newest() -> stat.Panel | timeseries.Panel:
    return stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def _over_time() -> stat.Panel | timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)  # noqa: FBT003  theirs
    return timeseries.Panel().legend(legend.placement(LegendPlacement.BOTTOM))
