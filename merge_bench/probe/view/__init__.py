"""Network measurements for people: tables and CSV."""
