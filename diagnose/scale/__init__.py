"""Many inputs: which ones there are, and the engines that measure each in a task of its own."""
