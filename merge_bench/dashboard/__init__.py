"""The dashboard view: one application for a browser and for Jupyter, which knows a results folder and a queue."""
