"""Floor 1: one partition's log on one disk. Touches files only through the FileSystem port."""
