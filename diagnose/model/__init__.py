"""What everything speaks of: the Trace, the ledger, intervals, the closed vocabularies."""
