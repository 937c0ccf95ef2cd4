"""Shows documents to people: terminal, reports, charts, dashboard."""
