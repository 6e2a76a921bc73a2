"""Commands about topics and their records: topics, produce, consume, offsets, load, replay, mirror.

topic_commands, offsets_command   make, show, change, delete topics; offsets at a time
produce_command                   lines become records
consume_command, record_format    records to stdout; how they are printed
load_command, replay_command      what is new in topics, into tables; rows of tables, into a topic
mirror_command                    topics of another cluster into this one
"""
