"""What the operations around one tell of it, where its name and its ranges do not decide."""
