"""Commands about topics and their records: topics, produce, consume, offsets, load, replay, mirror.

topic_commands, offsets_command   create, show, change, delete topics; offsets by time
produce_command                   lines become records
consume_command, record_format    records to stdout; output formats of records
load_command, replay_command      new records of topics into tables; rows of tables into a topic
mirror_command                    topics of another cluster into this one
"""
