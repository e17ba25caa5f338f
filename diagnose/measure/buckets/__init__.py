"""Which bucket a device operation belongs to: by name, by enclosing ranges, by its neighbours."""
