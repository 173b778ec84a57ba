"""Grafana's dashboards as code; `make generate` writes them into the chart as JSON."""
