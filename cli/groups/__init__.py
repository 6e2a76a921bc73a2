"""Commands about consumer groups: groups list, describe, lag, reset, export, import.

groups_command                       list, describe, lag, members, delete
group_watch                          `describe --watch`: the same tables, kept up to date
group_reset_command, group_reset     `reset-offsets`; the offsets it would set
group_transfer, group_offsets_file   `export` and `import`; files of committed offsets
group_options, group_tables          arguments of these commands; what they print
"""
