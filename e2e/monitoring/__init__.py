"""The chart's monitoring on a real Prometheus: its pod monitors as scrape configurations, its queries answered."""
