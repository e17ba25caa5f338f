"""Finds the commit, artefact or trace with which a metric changed, by measuring as few of them as possible."""
