"""What is said of a diagnosis: tables and sentences that every output shares."""
