"""Grafana's dashboards as code: `python -m charts.dashboards` writes them into the chart as JSON."""
