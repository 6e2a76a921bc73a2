"""The producer: records in, futures out.

producer, async_producer   what users call
batches/                   records become batches; outcomes of these
sender, produce_request    batches go to their leaders, in order, once
producer_end               records whose producer is not closed
transactions/              begin, commit, abort; the coordinator behind them
"""
