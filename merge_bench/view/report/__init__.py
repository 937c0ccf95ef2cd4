"""Results for people: a terminal or a pipe."""
