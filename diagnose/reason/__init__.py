"""From numbers to findings, walls and fixes."""
