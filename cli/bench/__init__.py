"""bradbury bench: what a cluster does, measured from here.

bench_command   the command
bench_runs      the measurements: produce, consume, round trip
bench_figures   percentiles, rates, a table, JSON, a picture
"""
