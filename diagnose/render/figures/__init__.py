"""Figures: each is described once (`figure`), by one builder module for each topic, and drawn by `svg` and by `plotly`."""
