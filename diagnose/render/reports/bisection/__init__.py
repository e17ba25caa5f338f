"""What is said of a bisection: tables and sentences that every output shares."""
