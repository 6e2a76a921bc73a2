"""Nodes of `local(processes=N)` in processes of their own, beside the one that called it.

node_process    one such process as the caller's has it: started, asked, started again, stopped
hosted_node     what runs in it: a Node, whose controller is in the caller's process
channel         calls between the two
"""
