"""Numbers from records: metrics, summaries, diagnostics, statistics, comparisons, forecasts."""
