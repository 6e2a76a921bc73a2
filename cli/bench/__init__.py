"""The command `bradbury bench`: throughput and latency of a cluster, measured from this machine.

bench_command   the command
bench_runs      the measurements: produce, consume, round trip
bench_figures   percentiles, rates; output as a table, JSON or a chart
"""
