"""The dashboard view: one application for a browser and for Jupyter, which knows nothing but the results folder."""
