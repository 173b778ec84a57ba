"""The few kinds of panels that the dashboards are made of, all on the dashboard's Prometheus.

A query is a pair: PromQL, in which Grafana fills in `$variables`, and the legend of its series.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import common, dashboard, stat, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from headrace_engine.sim.metrics import PERCENTILES

SHARES = tuple(percent / 100 for percent in PERCENTILES)

Query = tuple[str, str]
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH = 24  # of a row, in Grafana's units
SECONDS, SHARE, PER_SECOND, COUNT, TOKENS = "s", "percentunit", "ops", "short", "short"
RED, ORANGE, GREEN = "red", "orange", "green"
RATE = "[$__rate_interval]"
CONDITIONS = {"1": "True", "0": "False", "-1": "Unknown"}  # what their gauges' values mean


@dataclass(frozen=True)
class Row:
    """Panels side by side under a title."""

    title: str
    panels: tuple[object, ...]


@dataclass(frozen=True)
class Variable:
    """A choice above the dashboard: the values that `label` has in `metric`."""

    name: str
    metric: str
    label: str
    all: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard; `name` becomes its file and the end of its address."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = field(default=())


def quantiles(metric: str, labels: str, *by: str, shares: Iterable[float] = SHARES) -> list[Query]:
    """Make queries for quantiles of a histogram over all series with `labels`, for each value of `by`."""
    kept = ", ".join(("le", *by))
    rate = f"sum by ({kept}) (rate({metric}_bucket{{{labels}}}{RATE}))"
    prefix = "/".join(f"{{{{{label}}}}}" for label in by) + (" " if by else "")
    return [(f"histogram_quantile({share}, {rate})", f"{prefix}p{share * 100:g}") for share in shares]


def lines(title: str, unit: str, *queries: Query, about: str = "", stacked: bool = False) -> timeseries.Panel:
    """Make a panel of curves over time."""
    panel = timeseries.Panel().title(title).unit(unit).axis_soft_min(0).fill_opacity(8).line_width(1)
    panel.show_points(VisibilityMode.NEVER).tooltip(
        common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    )
    panel.legend(
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(show_legend=True)
        .calcs(["lastNotNull", "max"])
    )
    if unit == SHARE:
        panel.max(1)
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    return _filled(panel, about, queries)


def number(
    title: str, unit: str, query: str, *, about: str = "", steps: tuple[tuple[float, str], ...] = ()
) -> stat.Panel:
    """Make a panel of one number and its course, coloured from each step's value on; first green."""
    panel = stat.Panel().title(title).unit(unit).no_value("none")
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(BigValueGraphMode.AREA).color_mode(BigValueColorMode.VALUE)
    panel.thresholds(
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps(
            [
                Threshold(value=None, color=steps[0][1] if steps and steps[0][0] == 0 else GREEN),
                *(Threshold(value=value, color=color) for value, color in steps if value),
            ]
        )
    )
    return _filled(panel, about, [(query, title)])


def rows(
    title: str, query: str, columns: tuple[str, ...], *, about: str = "", value: dict[str, str] | None = None
) -> table.Panel:
    """Make a table of the series of now: the labels in `columns`, and the value in the words of `value`."""
    panel = table.Panel().title(title)
    shown = {label: index for index, label in enumerate(columns)}
    if value is not None:
        shown["Value"] = len(columns)
        words = {key: ValueMappingResult(text=text, color=_color(text)) for key, text in value.items()}
        panel.override_by_name(
            "Value", [DynamicConfigValue(id_val="mappings", value=[ValueMap(options=words)])]
        )
    panel.with_transformation(
        DataTransformerConfig(
            id_val="organize",
            options={
                "includeByName": dict.fromkeys(shown, True),
                "indexByName": shown,
                "renameByName": {"Value": "status"},
            },
        )
    )
    target = Dataquery().expr(query).instant().format(PromQueryFormat.TABLE).ref_id("A").datasource(SOURCE)
    return panel.description(about).datasource(SOURCE).with_target(target)


def build(board: Board) -> str:
    """Write the dashboard's JSON, as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"headrace-{board.name}")
        .description(board.description)
        .tags(["headrace"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Headrace")
            .type("dashboards")
            .tags(["headrace"])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    chosen: list[str] = []
    for variable in board.variables:
        made.with_variable(_variable(variable, chosen))
        chosen.append(variable.name)
    ids = itertools.count(1)
    for row in board.rows:
        made.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made.with_panel(
                panel.id(next(ids))
                .span(WIDTH // len(row.panels))
                .height(4 if isinstance(panel, stat.Panel) else 8)
            )
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(variable: Variable, narrowed_by: list[str]) -> dashboard.QueryVariable:
    filters = ", ".join(f'{name}=~"${name}"' for name in narrowed_by)
    selector = f"{variable.metric}{{{filters}}}" if filters else variable.metric
    built = (
        dashboard.QueryVariable(variable.name)
        .datasource(SOURCE)
        .query(f"label_values({selector}, {variable.label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )
    if variable.all:
        built.include_all(include_all=True).multi(multi=True).all_value(".*")
    return built


def _filled(panel, about, queries):
    panel.description(about).datasource(SOURCE)
    for index, (expr, legend) in enumerate(queries):
        panel.with_target(
            Dataquery()
            .expr(expr)
            .legend_format(legend)
            .ref_id(chr(ord("A") + index))
            .range()
            .datasource(SOURCE)
        )
    return panel


def _color(text: str) -> str:
    return {"True": GREEN, "False": ORANGE}.get(text, "text")
