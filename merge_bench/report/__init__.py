"""What people read about results: a run's conclusion and tables, what to do next, and the report as a page."""
