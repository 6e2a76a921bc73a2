"""The producer: records in, futures out.

producer, async_producer   the classes Producer and AsyncProducer
producer_settings          which settings are allowed together
batches/                   encoding of records to batches; their outcomes
sender                     sending of batches to leaders, in order, once
lingering_runs             records that wait for more of their topic
produce_request            a Produce request on the wire
produce_responses          what its answer means for each batch
producer_id_lookup         the producer id, without which none is sent twice safely
producer_end               delivery for producers that are not closed
transactions/              begin, commit, abort; requests to the coordinator
"""
