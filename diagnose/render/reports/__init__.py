"""From each kind of document a report: one builder per document, with the tables and sentences that it needs beside it."""
