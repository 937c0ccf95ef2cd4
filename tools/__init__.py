"""Programs for people who change the project: run by hand, never part of the package."""
