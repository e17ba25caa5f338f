"""Figures of a comparison."""
