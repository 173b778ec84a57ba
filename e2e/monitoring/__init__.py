"""The chart's monitoring on a real Prometheus: its pod monitors scrape, its queries are answered."""
