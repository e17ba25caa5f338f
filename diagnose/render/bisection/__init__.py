"""Figures of a bisection."""
