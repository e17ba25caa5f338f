"""What is said of several ranks: tables and sentences that every output shares."""
