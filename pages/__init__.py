"""What is made of the program for readers, and never runs with it: the reference pages, the manual page, the schemas of documents."""
