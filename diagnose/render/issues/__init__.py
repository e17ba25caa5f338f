"""What a CI runner is told: one list of issues, made from a diagnosis or from a comparison, written in three formats."""
