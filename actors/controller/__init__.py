"""Drivers of controller/: the controller, its standby, voters, and handles on them.

controller         the controller in this process: calls, threads, timers
standby            a broker's standby for a controller that is silent
voter_host         a node's voter; its disk work is done in threads
producer_ids       the producer ids of one node
two_clock_driver   the driver of one step that takes the time of two clocks
controller_handle  the controller as a node reaches it: driver of controller_finder
handles            the controller and the voters as other Ray actors reach them
"""
