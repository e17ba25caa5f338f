"""What differs between ranks: the reduction over what was measured of each. It needs summaries only, never a trace."""
