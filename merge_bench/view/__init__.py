"""Documents for people: terminal, report, drawings, dashboard."""
