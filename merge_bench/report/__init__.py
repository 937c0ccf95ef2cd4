"""What people read about results: the conclusion of a run with its tables, what to do next, and the report as a page."""
