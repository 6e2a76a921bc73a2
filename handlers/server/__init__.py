"""From a frame to a response: the table of APIs, and what is common to all of them.

table            every API: versions, message classes, handler
dispatch         header, table row, handler, writer
request_parts    long requests, in parts
"""
