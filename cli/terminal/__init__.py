"""What all commands share: help, options, tables, progress, one-line errors."""
