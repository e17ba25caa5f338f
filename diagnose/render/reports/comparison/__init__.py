"""What is said of a comparison: tables and sentences that every output shares."""
